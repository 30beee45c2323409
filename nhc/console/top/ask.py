"""A question to the person at the terminal: what is to be done, confirmed by typing a word, with a reason."""

from __future__ import annotations

from typing import ClassVar, List, NamedTuple, Optional, Sequence, Tuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label


class ActQuestion(NamedTuple):
    """`what` is going to happen, `confirm` is to be typed, `needs_why` says that a reason has to be given."""

    what: str
    confirm: str
    needs_why: bool


class Confirmed(NamedTuple):
    """The person's yes, with the reason."""

    why: str


class Ask(ModalScreen[Optional[Confirmed]]):
    """Nothing happens unless the word has been typed; Escape ends it."""

    BINDINGS: ClassVar[List[BindingType]] = [Binding("escape", "dismiss(None)", "Leave it")]
    CSS = """
    Ask { align: center middle; }
    Ask > Vertical { width: 70; height: auto; border: round $primary; padding: 1 2; background: $surface; }
    """

    def __init__(self, question: ActQuestion) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Label(self.question.what, markup=False)
            yield Label(f"To confirm, type {self.question.confirm}. Escape leaves all as it is.", markup=False)
            yield Input(placeholder=self.question.confirm, id="confirm")
            yield Input(placeholder="why" if self.question.needs_why else "why (may be left out)", id="why")
            yield Label("", id="wrong", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()  # the filter's field is submitted to the application
        if event.input.id == "confirm":
            self.query_one("#why", Input).focus()
            return
        typed = self.query_one("#confirm", Input).value.strip()
        why = self.query_one("#why", Input).value.strip()
        wrong = self.query_one("#wrong", Label)
        if typed != self.question.confirm:
            wrong.update(f"{typed!r} is not {self.question.confirm}")
        elif self.question.needs_why and not why:
            wrong.update("say why: others will read it")
        else:
            self.dismiss(Confirmed(why))


class KeyList(ModalScreen[None]):
    """Every key with what it does; any of Escape, `?` and Enter ends it."""

    BINDINGS: ClassVar[List[BindingType]] = [Binding("escape,question_mark,enter,q", "dismiss(None)", "Close")]
    CSS = """
    KeyList { align: center middle; }
    KeyList > Vertical { width: 60; height: auto; border: round $primary; padding: 1 2; background: $surface; }
    """

    def __init__(self, keys: Sequence[Tuple[str, str]]) -> None:
        super().__init__()
        self.keys = keys

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Label("\n".join(f"{key:8}{what}" for key, what in self.keys), markup=False, id="keys")
