"""Pages as frozen values: everything a template prints, and no HTML.

Each page names its template and its place in the site; each field is explained in the class's
docstring.
"""
