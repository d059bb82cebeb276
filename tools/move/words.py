import sys,re,tokenize,io,ast
from pathlib import Path
from collections import Counter
R={'twin','twins','judge','judges','judged','removal','removals','aside','room','look','looks'}
P=re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
root=Path(sys.argv[1])
for top in ('src','tests','benchmarks','docs'):
    c=Counter(); w={}
    for f in sorted((root/top).rglob('*.py')):
        t=f.read_text()
        names=[k.string for k in tokenize.generate_tokens(io.StringIO(t).readline) if k.type==tokenize.NAME]
        for node in ast.walk(ast.parse(t)):
            if isinstance(node,ast.JoinedStr):
                names+=[n.id for n in ast.walk(node) if isinstance(n,ast.Name)]+[n.attr for n in ast.walk(node) if isinstance(n,ast.Attribute)]
        for n in names:
            if n.startswith('test_'): continue
            if {p.lower() for p in P.findall(n)}&R or 'put_by' in n: c[n]+=1; w.setdefault(n,set()).add(f.stem)
    print('==',top,len(c),sum(c.values()))
    for n,k in sorted(c.items()): print(f'  {n} {k} {sorted(w[n])[:6]}')
