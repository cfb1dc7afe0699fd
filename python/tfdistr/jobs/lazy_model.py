"""The trained model of a result, which is made at its first use, in any process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfdistr.training.given_model import callers_model
from tfdistr.training.model_state import ModelState
from tfdistr.utils.interrupts import import_tensorflow

if TYPE_CHECKING:
    import keras


class LazyModel:
    """A trained model.

    Args:
        recipe: Makes a model of its kind, like the model of a ``Job``.
        read: Reads its state.
        build: Makes a model of its kind in this process, if ``recipe`` cannot.
        inputs: The inputs with which a model is built, for ``made``; see ``Training``.
        made: The model, if it is already here.

    Attributes:
        recipe: As above.
    """

    def __init__(
        self,
        recipe: Any,
        read: Callable[[], ModelState],
        build: Callable[[], keras.Model] | None = None,
        *,
        inputs: Any = None,
        made: keras.Model | None = None,
    ) -> None:
        self.recipe = recipe
        self._read = read
        self._build = build
        self._inputs = inputs
        self._model = made

    @property
    def model(self) -> keras.Model:
        """The model. It is made at the first use; a model that the caller gave gets its state then."""
        if self._model is None:
            state = self._read()
            import_tensorflow()
            model = callers_model(self.recipe) or self.recipe_here()
            self._model, self._inputs = state.give(model), state.inputs
        return self._model

    @property
    def recipe_here(self) -> Any:
        """Return the function that makes a model of its kind in this process."""
        return self._build or self.recipe

    def state(self) -> ModelState:
        """Return the current state of the model."""
        return self._read() if self._model is None else ModelState.of(self._model, self._inputs)

    def with_recipe(self, recipe: Any, build: Callable[[], keras.Model] | None = None) -> LazyModel:
        """Return the same state, with another recipe for the model."""
        return LazyModel(recipe, self.state, build)
