/* What the scripts of the site share: `window.headbook` and `window.oneFile`, and the values of the
   data files, whose Python side is named beside each. Only tools read this file. */

/* --- elements --- */

type Tags = HTMLElementTagNameMap;
type Attributes = Record<string, string | number>;
type Content = Node | string;
type SvgTags = SVGElementTagNameMap;
/** The tag that a selector ends with: of ".near td a[href]" it is "a". */
type Tag<S> = S extends `${string} ${infer Rest}` ? Tag<Rest>
  : S extends `${infer Rest}[${string}` ? Tag<Rest>
  : S extends `${infer Rest}.${string}` ? Tag<Rest>
  : S extends `${infer Rest}:${string}` ? Tag<Rest>
  : S;
type Selected<S> = Tag<S> extends keyof Tags ? Tags[Tag<S>]
  : Tag<S> extends keyof SvgTags ? SvgTags[Tag<S>]
  : HTMLElement;
type All = <S extends string>(selector: S, inside?: ParentNode) => Selected<S>[];
/** The first one, which must be there. */
type One = <S extends string>(selector: S, inside?: ParentNode) => Selected<S>;
type Make = <K extends keyof Tags>(name: K, attributes?: Attributes, text?: string) => Tags[K];
type Draw = <K extends keyof SvgTags>(
  name: K, attributes?: Attributes, text?: string | number,
) => SvgTags[K];
/** What keys or words lead to. */
type Lookup<T> = Record<string, T | undefined>;
/** Numbers of a data file, lowest byte first. */
type Bytes = Uint8Array<ArrayBuffer>;
type Point = { x: number; y: number };
type Focusable = HTMLElement | SVGElement;

/* --- attention --- */

type Maybe = number | null;
/** A query and a key by place; null where none is chosen. */
type Pair = { q: Maybe; k: Maybe };
type Cell = { q: number; k: number };
type ViewName = "raw" | "nosink" | "renorm" | "norm";
type Units = "pieces" | "words";
type Scale = "root" | "linear" | "log";
type Settings = {
  view: ViewName; units: Units; rows: "" | "written"; scale: Scale; mass: string;
};
/** What an address holds beside the settings; all of it is text. */
type Wanted = {
  at?: string; heads?: string; q?: string | number; k?: string | number; neurons?: string;
  dock?: string; matrix?: string;
};
/** The tokens of one side: pieces, each with its word, and the words' names. */
type TokenText = {
  pieces: string[]; names: string[]; units: number[]; special: number[];
  starts?: number[]; /* of sentences of a passage, but for the first */
};
/** `headbook.pages.parts.sentence_maps.attention_data`: maps one after the other, 8 bits a weight. */
type AttentionData = {
  queries?: TokenText; keys: TokenText; causal: boolean; weights: Uint8Array; norms: number[];
};
/** `headbook.site.data_files._visible_rows`: all maps of a stack in a sentence. */
type StackData = AttentionData & { places: [number, number][]; heads: number; texts: string[] };
type StoredMap = {
  queries: TokenText; keys: TokenText; causal: boolean; steps: Uint8Array; norms: number[];
  made: Lookup<Seen>;
  written?: boolean; /* whether a token has the row that predicts it, not that which reads it */
};
/** A map in a view: names of rows and columns, values row after row, NaN where nothing is seen. */
type Seen = {
  rows: string[]; columns: string[]; values: Float64Array;
  row: (q: number) => Float64Array; column: (k: number) => Float64Array;
  starts: [rows: number[], columns: number[]]; /* where sentences of a passage begin */
};
/** What can be drawn as a map. */
type Drawable = Pick<Seen, "rows" | "columns" | "values"> & Partial<Pick<Seen, "starts">>;
type Matrix = "attention" | "similarity" | "centred";
/** `headbook.pages.parts.sentence_maps.similarity_data`: head outputs of a sentence. */
type OutputsData = { tokens: number[]; axes: number; mean: Bytes; low: Bytes; high: Bytes };
/** Attention or similarity of outputs in the work panel: `output_similarity.js`. */
interface MatricesLike {
  matrix: Matrix;
  title: string;
  box: HTMLElement;
  turn: (matrix?: string) => Promise<void>;
  draw: () => void;
  similar: () => Seen[] | null;
  message: (all: Seen[], pair: Pair) => Content[];
  legend: () => HTMLElement;
}
type Ranked = { key: number; value: number; sofar: number };
type NamedMap = { name: string; map: StoredMap };
/** A head's map in the view that is chosen. */
type HeadView = Seen & NamedMap;
type Tile = { stack: string; head: string; place: [number, number]; name: string; href: string };
type TileView = HeadView & Tile;

interface Weights {
  mapOf: (data: AttentionData, place?: number) => StoredMap;
  viewOf: (map: StoredMap, view: ViewName) => ViewName;
  seen: (map: StoredMap, view: ViewName, units: Units) => Seen;
  sorted: (row: Float64Array) => Ranked[];
  most: (row: Float64Array, share: number) => Ranked[];
  shade: (value: number, scale: Scale) => number;
  written: (value: number) => string;
  total: (row: Float64Array) => number;
  startsOf: (text: TokenText, units: Units) => number[];
}
interface Switches {
  state: Settings;
  titles: Record<ViewName, string>;
  scales: Record<Scale, string>;
  names: Record<Units, string>;
  point: (what: Wanted, step?: boolean) => void;
  address: (what?: Wanted) => string;
  set: (values: Partial<Settings>) => void;
  place: () => Wanted;
  changed: () => boolean;
  follow: (call: () => void) => void;
}
/** Colours of weights, of differences, and of cosines. */
type MapScale = Scale | "difference" | "cosine";
type Pen = CanvasRenderingContext2D;
type Colour = number[];
interface Drawing {
  DASHES: number[][];
  colour: (part: number, scheme?: "light" | "dark") => Colour;
  sided: (value: number) => Colour;
  signed: (value: number, scheme?: "light" | "dark") => Colour;
  paintMap: (
    canvas: HTMLCanvasElement, map: Drawable, scale: MapScale, near: Pair,
  ) => void;
  cellAt: (event: MouseEvent, canvas: HTMLCanvasElement, map?: Drawable) => Cell | null;
  paintLines: (
    canvas: HTMLCanvasElement, views: Seen[], query: Maybe, share: number,
    room: { height: number; width: number; inks: string[] },
  ) => void;
  paintSheet: (views: Drawable[], heads: number, scale: Scale) => string;
  inkOf: (element: Element) => string;
  penOf: (canvas: HTMLCanvasElement) => Pen;
  sized: (canvas: HTMLCanvasElement, width: number, height: number) => Pen;
}
interface PanelLike { title: HTMLElement; build: () => void; draw: () => void }
type Hearer = "pointer" | "key";
/** One head's attention in a sentence: `attention_view.js`. */
interface InstanceLike {
  id: string;
  kept: Pair;
  now: Pair;
  views: HeadView[];
  units: Units;
  place: Wanted;
  panel: PanelLike | null;
  after: (() => void) | null;
  show: () => Promise<void>;
  look: (q: Maybe, k: Maybe, by: Hearer) => void;
  leave: (by: Hearer) => void;
  keep: (q: Maybe, k: Maybe) => void;
  release: () => void;
  point: () => void;
  restore: (wanted: Wanted) => void;
}
type InstanceSource = {
  id: string; home: Pair; read: () => Promise<NamedMap>;
  lines: { queries: HTMLElement; keys: HTMLElement }; statusLine: HTMLElement; about: string;
};
/** What saves pictures: an instance or the workspace of a sentence. */
type Savable = {
  about: string; now: Pair; views: HeadView[]; panel?: { title: HTMLElement } | null;
  matrices?: MatricesLike | null;
};

/* --- the workspace of a sentence --- */

type Marks = HTMLButtonElement[] | HTMLAnchorElement[];
/** The small maps of a stack: `sentence_tiles.js`. */
interface TileGrid {
  stack: string;
  exact: boolean;
  neurons: string | undefined;
  outputs: string | undefined;
  few: boolean;
  columns: number;
  list: Tile[];
  marks: HTMLElement[];
  name: (cards: Map<string, Card>) => void;
  paint: (src: string, each: (i: number) => string) => void;
  mark: (chosen: Tile[]) => void;
  follow: (call: (tile: Tile, mark: HTMLElement) => void) => void;
}
interface WorkspaceLike {
  views: TileView[];
  kept: Pair;
  now: Pair;
  place: Wanted;
  open: boolean;
  after: (() => void) | null;
  tiles: TileGrid;
  /** Null where the page has no outputs of heads. */
  matrices: MatricesLike | null;
  crosses: boolean;
  written: boolean;
  at: string;
  name: string;
  units: Units;
  draw: () => void;
  fromQuery: boolean;
  /** The place of the chosen token, of the query where one is chosen; -1: none is. */
  chosen: number;
  summaryOf: (view: TileView) => string;
  keep: (q: Maybe, k: Maybe) => void;
  choose: (tile: Tile) => void;
  compare: (head: string) => void;
  undock: () => void;
  strongest: () => { tile: Tile; at: number; value: number }[];
  point: (step?: boolean) => void;
}
interface DockLike {
  box: HTMLElement;
  title: HTMLElement;
  docked: boolean;
  head: () => void;
  draw: () => void;
}
interface NeuronsLike {
  box: HTMLDetailsElement;
  open: (wanted: boolean) => void;
  draw: () => void;
}
/** Queries and keys of a layer in a sentence: `headbook.pages.parts.sentence_maps.neurons_data`. */
type NeuronsData = {
  width: number; heads: number; keyHeads: number; scaling: number;
  queries: Bytes; keys: Bytes; added: Bytes; seen: Bytes; read?: Layer;
  queryScales: Bytes; keyScales: Bytes; bits: number; error: number;
};
type Layer = {
  width: number; heads: number; keyHeads: number; scaling: number;
  queries: Float32Array; keys: Float32Array; added: Float32Array; seen: Uint8Array;
};
type ScoreRow = {
  query: Float32Array; key: (k: number) => Float32Array; products: number[];
  added: number[] | null; scores: number[]; weights: number[]; sum: number; sees: number;
};
/** The paths of tokens: `headbook.pages.parts.token_paths.paths_data`. */
type PathValues = Maybe[];
type PathView = {
  name: string; layers: number[]; values: PathValues[];
  classes: Record<string, PathValues>; beside: Record<string, PathValues>;
  ends?: [low: number, high: number]; /* of an axis that another chart has, too */
};
type PathMetric = {
  id: string; title: string; axis: string; ranks: boolean; start: Maybe; views: PathView[];
};
type PathsData = { kinds: string[]; names: string[]; metrics: PathMetric[] };
/** The nearest vocabulary tokens: `headbook.pages.sentence.trajectory_data`. */
type Entries = Record<string, { layers: number[]; cells: [string, string][][][] }>;
/** Which token of a sentence is chosen, and of which stacks. */
type TokenDetail = { place: number; stacks: string[]; name: string };

/* --- the list of heads --- */

/** A word, further words, the number by which words sort, and one that is printed, with its table. */
type Word = [text: string, detail: string, order: Maybe, value?: string, table?: string];
/** `headbook.pages.parts.head_list.list_data`. */
type HeadRow = [
  name: string, href: string, stack: string, layer: number, label: Word,
  relation: Word, verdict: Word, family: string, style: string, rank: number,
  distance?: number, key?: number,
];
type HeadListData = {
  heads: HeadRow[]; stacks: [name: string, title: string][]; columns: string[];
  metrics: {
    id: string; title: string; share: boolean; table?: string; labels: [string, string, string][];
  }[];
};
type WordName = "class" | "verdict" | "relation";
type Head = {
  i: number; name: string; href: string; stack: string; layer: number; family: string;
  style: string; rank: number; distance?: number; key?: number; text: string;
} & Record<WordName, Word>;
type Column = {
  key: string; metric: string; share: boolean; table: string; title: string; unit: string;
};
type Packed = { value: Bytes; low: Bytes; high: Bytes; thin: string; guess?: string };
type Values = {
  value: Float64Array; low: Float32Array; high: Float32Array; thin: boolean[]; guess: boolean[];
};
type Numbered = Column & Values;
type ValuesByColumn = Map<string, Numbered>;
type HeadList = Omit<HeadListData, "heads" | "columns"> & {
  heads: Head[]; columns: Map<string, Column>; facts: WordName[]; first: string[];
  bars: boolean;
};
/** What a reader has chosen. */
type ListState = {
  columns: string[]; sort: string; down: boolean; stack: string; from: string; to: string;
  find: string; ranges: Map<string, string[]>;
} & Record<WordName, string>;
interface List {
  WORDS: Record<WordName, string>;
  NAMES: WordName[];
  opened: (list: HeadListData) => HeadList;
  beginning: (list: HeadList) => ListState;
  read: (list: HeadList, hash: string) => ListState;
  write: (list: HeadList, state: ListState) => string;
  words: (list: HeadList, name: WordName) => string[];
  passes: (state: ListState, numbers: ValuesByColumn) => (head: Head) => boolean;
  order: (state: ListState, numbers: ValuesByColumn) => (a: Head, b: Head) => number;
  linksOf: (list: HeadList, table: HTMLElement) => Map<string, string>;
  rowOf: (
    list: HeadList, head: Head, columns: Numbered[], links: Map<string, string>,
  ) => HTMLTableRowElement;
}
interface NumberFormats {
  MISSING: string;
  number: (value: number, share: boolean, like?: number) => string;
  interval: (low: number, high: number, share: boolean) => string;
  unpacked: (packed: Packed) => Values;
}
/** A control with a value. */
type Field = HTMLInputElement | HTMLSelectElement;
type Controls = (box: HTMLElement, list: HeadList, use: {
  state: ListState; change: (values: Partial<ListState>) => void;
  refresh: (values: Partial<ListState>) => void; reset: () => void;
}) => void;

/* --- the overview and the foot of pages --- */

/** Attention of one family in the live sentence, row after row: steps of 1/255, and heads. */
type FamilyData = { mean: Uint8Array; weight: Uint8Array; head: Uint8Array };
/** The live sentence of a stack: `headbook.pages.index.live_data`. */
type LiveData = {
  queries: string[]; keys: string[]; special: [queries: number[], keys: number[]];
  heads: string[]; families: Record<string, FamilyData>;
};
/** Which attention a chosen word shows: what it receives, or what it gives. */
type Direction = "to" | "from";
/** A head in short: `headbook.pages.parts.head_card.atlas_data`. */
type Card = [
  name: string, noun: string, style: string, summary: string,
];
/** What the search looks through: `headbook.site.search.find_data`. */
type Named = [title: string, href: string, note: string, unseen: string];
type FindToken = [
  name: string, count: number, within: number, sentences: number[], typed: number,
];
type FindData = {
  questions: Named[]; pages: Named[]; metrics: Named[];
  same: Record<string, string[]>; sentences: [number: number, href: string, text: string, other?: string][]; total: number;
  tokens: FindToken[]; functions: [noun: string, text: string, words: string][];
  notes?: [name: string, text: string][];
};
/** A number of a head in the data of a heat map; what is missing is null. */
type MapRow = {
  layer: number; head: number; value: number; low: number; high: number; view: string;
  label: string;
};

/** A step of checkpoints (`pages/checkpoints/checkpoints`): class and label of each head. */
interface CheckpointStep { name: string; src: string; heads: [style: string, label: string][] }

/** `headbook.site.export.table_facts`: columns are name, description and whether they are texts. */
type TableFacts = { files: string[]; rows: number; columns: [string, string, boolean][] };
/** `headbook.site.rows`: of a row first the numbers of its identifying columns. */
type RowValue = string | number | boolean | null;
type TableRows = { lines: number; rows: Record<string, [by: number[], ...values: RowValue[]]> };
/** The data files by name; those of single things by how their names begin. */
interface DataFiles {
  atlas: Record<string, Card[]>;
  live: Record<string, LiveData>;
  find: FindData;
  headlist: HeadListData;
  types: Record<string, string[][]>;
  checkpoints: Record<string, CheckpointStep[]>;
  tables: Record<string, TableFacts>;
  [rows: `rows-${string}`]: Record<string, TableRows>;
  [values: `values-${string}`]: Record<string, Packed>;
  [later: `later-${string}`]: string[];
  [map: `map-${string}`]: Record<string, unknown[]>;
  [sentence: `sentence-${string}`]: Record<string, StackData>;
  [neurons: `neurons-${string}`]: NeuronsData;
  [outputs: `${string}-outputs`]: Record<string, OutputsData>;
}

/* --- globals --- */

/** What belongs to a choice that no stored file shows: `choices.js`. */
interface Choices {
  quoted: (text: string) => string;
  saver: (text: string, act: () => void) => HTMLButtonElement;
  fileName: (name: string, chosen: string[]) => string;
  cited: (text: string, name: string, file: string, title: string) => string;
  entry: (text: string) => HTMLDetailsElement;
  asPdf: (command: string) => HTMLElement;
  csv: (columns: string[], rows: Record<string, unknown>[]) => string;
}
interface Headbook {
  take: (name: string, value: unknown) => void;
  packed: (name: string, text: string) => void;
  root: () => string;
  all: All;
  one: One;
  make: Make;
  svg: Draw;
  load: <K extends string>(
    src: string, name: K,
  ) => Promise<K extends keyof DataFiles ? DataFiles[K] : any>;
  use: (name: string) => Promise<void>;
  offer: (name: string, type: string, text: string) => void;
  hash: () => string;
  link: (hash: string) => string;
  apart: (text: string) => HTMLElement;
  folded: (text: string) => string;
  revived: (content: Uint8Array) => any;
  targetOf: (event: Event) => HTMLElement;
  REACH: number;
  nearest: <T extends Point>(places: T[], x: number, y: number) => T | undefined;
  rove: (box: GlobalEventHandlers & Element, links: Focusable[], columns: number | (() => number)) => void;
  numbers: NumberFormats;
  list: List;
  controls: Controls;
  weights: Weights;
  switches: Switches;
  drawing: Drawing;
  tiles: (box: HTMLElement) => TileGrid;
  Matrices: new (work: WorkspaceLike) => MatricesLike;
  scores: {
    layerOf: (data: NeuronsData) => Layer;
    rowOf: (layer: Layer, head: number, q: number) => ScoreRow;
  };
  Instance: new (source: InstanceSource) => InstanceLike & Savable;
  Panel: new (instance: InstanceLike & Savable, stage: HTMLElement) => unknown;
  Dock: new (box: HTMLElement, work: WorkspaceLike) => DockLike;
  Neurons: new (instance: WorkspaceLike, files: string) => NeuronsLike;
  save: (instance: Savable, box: HTMLElement) => void;
  paths: () => Promise<void>;
  finder: (box: HTMLElement) => void;
  heatPicture: (
    rows: MapRow[],
    scale: {
      fills: string[]; fillOf: (value: number) => string; ends: [string, string]; caption: string;
    },
  ) => string;
  choices: Choices;
  showRow: (number: Element) => Promise<void>;
}
/** A site in one file takes the place of the folder: `onefile.js`. */
interface OneFile {
  hash: () => string;
  query: () => string;
  link: (hash: string) => string;
  run: (src: string) => Promise<void>;
  aimed: (body: HTMLElement) => HTMLElement;
}
interface Window {
  headbook: Headbook;
  oneFile?: OneFile;
  unpack: (text: string) => Promise<Uint8Array<ArrayBuffer>>;
}
interface DocumentEventMap {
  "headbook-path": CustomEvent<{ place: number; stack: string }>;
  "headbook-token": CustomEvent<TokenDetail>;
}
