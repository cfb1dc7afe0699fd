"""Write the table of docs/upgrading.md from the table of the arguments that are gone.

    .venv/bin/python tools/upgrading.py
"""

from __future__ import annotations

from pathlib import Path

from tfdistr.r.messages import in_r
from tfdistr.utils.removed import REMOVED, REMOVED_VALUES, WITHOUT_CLUSTER

PAGE = Path(__file__).parents[1] / "docs" / "upgrading.md"
BEGIN, END = "<!-- removed:begin -->", "<!-- removed:end -->"


def updated(page: str) -> str:
    """Return the text of the page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def table() -> str:
    """Return the table, with a row for each argument and value."""
    lines = ["| function | before | now | in R |", "|---|---|---|---|"]
    for function in dict.fromkeys([*REMOVED, *REMOVED_VALUES]):
        for old, new in REMOVED.get(function, {}).items():
            lines.append(_row(function, f"{old}=...", new.format(value="...")))
        for old, new in REMOVED_VALUES.get(function, {}).items():
            lines.append(_row(function, old, new))
    return "\n".join(lines)


def _row(function: str, old: str, new: str) -> str:
    ways = new.split(WITHOUT_CLUSTER)
    in_python, r_code = (WITHOUT_CLUSTER.join(f"`{way}`" for way in each) for each in (ways, map(in_r, ways)))
    return f"| `{function}()` | `{old}` | {in_python} | {r_code} |"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
