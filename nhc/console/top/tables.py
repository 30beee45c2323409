"""Tables that are filled anew every few seconds while somebody reads in them."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

from rich.text import Text
from textual.widgets import DataTable

Row = Tuple[str, Sequence[Text]]
"""A row's key and its cells."""
Columns = Sequence[Tuple[str, Optional[int]]]
"""Of each column its title and its width, None for as wide as it has to be."""


class LiveTable(DataTable[Text]):
    """The cursor stays on its row and the rows in sight stay there, whatever comes above them."""

    def __init__(self, columns: Columns, name: str) -> None:
        super().__init__(cursor_type="row", id=name)
        self.titles = columns
        self.keys: List[str] = []

    def on_mount(self) -> None:
        for title, width in self.titles:
            self.add_column(title, width=width, key=title)

    def fill(self, rows: Sequence[Row]) -> None:
        """Show these rows. Where they are the same ones as before, only cells that changed are touched."""
        keys = [key for key, _cells in rows]
        if keys == self.keys:
            for at, (_key, cells) in enumerate(rows):
                for column, cell in enumerate(cells):
                    if self.get_cell_at((at, column)) != cell:  # type: ignore[arg-type]
                        self.update_cell_at((at, column), cell)  # type: ignore[arg-type]
            return
        chosen, offset = self.chosen, self.scroll_offset
        above = self.cursor_row - int(offset.y)
        self.clear()
        self.keys = keys
        for key, cells in rows:
            self.add_row(*cells, key=key)
        if chosen in self.keys:
            row = self.keys.index(chosen)
            self.move_cursor(row=row, animate=False, scroll=False)
            self.scroll_to(y=max(0, row - above), animate=False, force=True)

    @property
    def chosen(self) -> str:
        """The key of the row that the cursor is on, "" where there is none."""
        return self.keys[self.cursor_row] if 0 <= self.cursor_row < len(self.keys) else ""
