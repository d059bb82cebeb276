"""Tables of claims, which `Study.tests` returns; importing this folder makes them known to studies.

A study stands below the report and cannot import its rules. So the functions are entered in
`headbook.study.tables.COMPUTED` here; `headbook.Study`, `headbook.collect` and `headbook.render`
import this folder.
"""

from headbook.report.tables.tests import tests_table
from headbook.study.study import Study
from headbook.study.tables import COMPUTED

__all__ = ["Study"]

COMPUTED["tests"] = tests_table
