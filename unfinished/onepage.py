"""Write single pages of a stored study to a folder: onepage.py STUDY OUT PATH... [--data]

Run it in a worktree with PYTHONPATH=src. PATHs are addresses from the site's root, such as
patterns.html, index.html, heads/L02-H08.html or sentences/0003.html. --data also writes tables
and data of scripts (slow).
"""
import shutil, sys
from pathlib import Path
from headbook import charts
from headbook.site.sites import StudySite
from headbook.site.writer import page_writer
from headbook.site.assets import write_assets
args = [a for a in sys.argv[1:] if a != "--data"]
study, out, wanted = Path(args[0]), Path(args[1]), set(args[2:])
out.mkdir(parents=True, exist_ok=True)
site = StudySite(study)
shutil.rmtree(out / "assets", ignore_errors=True)
with charts.without_schema_checks():
    writer = page_writer(site, out, "")
    write_assets(out, max(n for s in site.stacks for n in (s.n_layers, s.n_heads)), site.kind)
    (out / "assets" / "maps.css").write_text(site.map_sheet())
    (out / "data" / "charts").mkdir(parents=True, exist_ok=True)
    (out / "figures").mkdir(exist_ok=True)
    if "--data" in sys.argv:
        shutil.rmtree(out / "data"); (out / "data" / "charts").mkdir(parents=True)
        site.write_data(writer)
    entries = {e.path: e for e in site.entries}
    done = set()
    for path in wanted:
        if path == "index.html":
            writer.write_page(site.first()); done.add(path)
        elif path in entries and entries[path].make:
            writer.write_page(entries[path].make(site.results)); done.add(path)
    rest = wanted - done
    if rest:
        for page in [*(site.charted if any(r.startswith("metrics/") for r in rest) else ()), *site.many()]:
            if page.path in rest:
                writer.write_page(page); done.add(page.path)
print("written:", sorted(done), "missing:", sorted(wanted - done))
