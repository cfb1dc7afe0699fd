"""The arguments of ``tfdistr kubernetes``: a script, its pods, and the needs of each pod."""

from __future__ import annotations

import os
import re
import secrets
from argparse import REMAINDER
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import attrs

from tfdistr._version import __version__
from tfdistr.cli.flags import ENV, option, with_checks
from tfdistr.cli.script_options import LANGUAGES, check_arguments, check_script
from tfdistr.clusters.environment import check_env
from tfdistr.errors import ArgumentError
from tfdistr.rendezvous.pods import INDEX
from tfdistr.rendezvous.token import TOKEN
from tfdistr.utils.arguments import check_bool, check_int, check_optional_int, check_text
from tfdistr.utils.describe import describe

#: The image that the Containerfile of ``tfdistr kubernetes containerfile`` makes.
IMAGE = f"tfdistr:{__version__}"
_LONGEST_LABEL = 63
_LONGEST_SCRIPT = 1_000_000  # a ConfigMap has at most 1 MiB
# A Service needs a letter at the beginning (RFC 1035).
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MEMORY = re.compile(r"(?=[0.]*[1-9])\d+(\.\d+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?")
_WORD = re.compile(r"\S+")
_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_SECRET = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]{0,252}")  # also a key of a Secret


def label_of(path: str) -> str:
    """Return a name for the objects of a script, such as "my-train" for "My train.py"."""
    words = re.sub(r"[^a-z0-9]+", "-", Path(path).stem.lower()).strip("-")
    if not words[:1].isalpha():
        words = f"tfdistr-{words}".strip("-")
    return words[:40].strip("-")


def _name(name: str, value: str | None, form: re.Pattern[str], longest: int) -> None:
    """Check a name that Kubernetes gives to an object, or None."""
    begin = "a letter at the beginning" if form is _LABEL else "no '-' at the ends"
    rule = (
        f"a name of Kubernetes: lower-case letters, digits and '-', with {begin}, and at most {longest} "
        "characters"
    )
    check_text(name, value, form, rule=rule, fix=f'Pass {name}="digits", for example.', longest=longest)


def _image(name: str, value: object) -> str:
    fix = f'Pass image="registry.example.org/{IMAGE}", for example.'
    return check_text(name, value, _WORD, rule="the name of an image of a container", fix=fix) or IMAGE


def _run_dir(name: str, value: object) -> str | None:
    if value is None:
        return None
    path = PurePosixPath(value) if isinstance(value, str) else None
    if path is None or path.is_absolute() or not path.parts or ".." in path.parts:
        raise ArgumentError(
            "`run_dir` must be a folder in the volume: a path that begins there, and stays there.",
            received=describe(value),
            fix='Pass run_dir="runs/digits", for example.',
        )
    return str(path)


def _variables(value: object) -> dict[str, str]:
    env = check_env(value)
    for name in env:
        if not _VARIABLE.fullmatch(name) or _is_set_by_manifests(name):
            raise ArgumentError(
                "A name in `env` must be one that Kubernetes takes: letters, digits, '-', '_' and '.', and "
                f"no TFDISTR_KUBERNETES_... or {INDEX}, which the manifests set.",
                received=name,
                fix='Write it like "OMP_NUM_THREADS".',
            )
    return env


def _is_set_by_manifests(name: str) -> bool:
    return name.startswith("TFDISTR_KUBERNETES_") or name == INDEX


def _secret_variables(_: str, names: object) -> dict[str, str]:
    """Return the values that these variables have in this process. No error shows a value."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ArgumentError(
            "`secret_env` must be a list of names of environment variables.",
            received="a text" if isinstance(names, str) else f"a value of type {type(names).__name__}",
            fix='Pass secret_env=["WANDB_API_KEY"], for example.',
        )
    for name in names:
        if not isinstance(name, str) or not _SECRET.fullmatch(name) or _is_set_by_manifests(name):
            raise ArgumentError(
                "A name in `secret_env` must be one of an environment variable: letters, digits and '_', "
                f"with no digit at the beginning, and no TFDISTR_KUBERNETES_... or {INDEX}, which the "
                "manifests set.",
                # What follows "=" would be a secret.
                received=describe(name.partition("=")[0] + "=..." if "=" in str(name) else name),
                fix='Write it like "WANDB_API_KEY": its value is taken from the environment.',
            )
        if name not in os.environ:
            raise ArgumentError(
                f"`secret_env` takes the value of {name} from the environment.",
                received=f"an environment without {name}",
                fix=f"Set {name} in the environment of this process first.",
            )
        if not _is_utf_8(os.environ[name]):
            raise ArgumentError(
                f"`secret_env` takes text: the value of {name} must be UTF-8.",
                received="a value with other bytes",
                fix=f"Encode the value of {name}, by base64 for example, and decode it in the script.",
            )
    return {name: os.environ[name] for name in names}


def _is_utf_8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@attrs.frozen(kw_only=True, field_transformer=with_checks)
class Container:
    """A script, and the container that runs it in each pod."""

    script: str = option(default=attrs.NOTHING, help="a file of Python (.py) or R (.R)", positional={})
    arguments: tuple[str, ...] = option(
        check_arguments, default=(), help="the arguments of the script", positional={"nargs": REMAINDER}
    )
    image: str = option(_image, help="the image of the pods")
    in_image: bool = option(check_bool, default=False, help="the script is a path in the image")
    cores_per_worker: int | None = option(check_optional_int, help="cores of a pod")
    memory: str | None = option(
        check_text, _MEMORY, help="memory of a pod, such as 8Gi", metavar="AMOUNT",
        rule="an amount of Kubernetes: a number above 0, and Ki, Mi, Gi, Ti, k, M, G or T",
        fix='Pass memory="8Gi", for example.',
    )  # fmt: skip
    gpus_per_worker: int = option(check_int, minimum=0, default=0, help="NVIDIA GPUs of a pod")
    env: Mapping[str, str] = attrs.field(factory=dict, converter=_variables, repr=False, metadata=ENV)
    secret_env: Mapping[str, str] = option(
        _secret_variables, default=(), repr=False, metavar="NAME", action="append",
        help="a variable of this environment that a Secret brings to the workers; repeat it",
    )  # fmt: skip

    def __attrs_post_init__(self) -> None:
        if twice := sorted(self.env.keys() & self.secret_env.keys()):
            raise ArgumentError(
                "A variable must be in `env` or in `secret_env`, not in both.",
                received=f"{', '.join(twice)} in both",
                fix="Leave it out of `env`, which other users of Kubernetes can read.",
            )
        if self.in_image:
            if not str(self.script).startswith("/") or Path(self.script).suffix.lower() not in LANGUAGES:
                raise ArgumentError(
                    "A script of the image must be named by its whole path there, with .py or .R at its end.",
                    received=describe(self.script),
                    fix='Pass script="/app/train.py", for example.',
                )
            return
        check_script("script", self.script)
        size = Path(self.script).stat().st_size
        if size > _LONGEST_SCRIPT:
            raise ArgumentError(
                f"A script must have at most {_LONGEST_SCRIPT} bytes: a ConfigMap has no place for more.",
                received=f"{self.script} with {size} bytes",
                fix='Put it into the image, and pass its path there, image="..." and in_image=True.',
            )


@attrs.frozen(kw_only=True, field_transformer=with_checks)
class Pods(Container):
    """The pods of a script. `kubernetes_manifests` describes the arguments."""

    workers: int = option(check_int, default=2, help="the number of pods", also=["-n"])
    name: str = option(
        default=attrs.NOTHING, help="the name of the objects (default: from the name of the script)"
    )
    namespace: str | None = option(help="default: the namespace of kubectl")
    volume: str | None = option(help="a PersistentVolumeClaim for checkpoints", metavar="CLAIM")
    run_dir: str | None = option(_run_dir, help="the folder of the checkpoints in the volume", metavar="DIR")
    max_restarts: int = option(
        check_int, minimum=0, default=0, help="how often the workers start again after a failure"
    )
    grace_period: int = option(
        check_int, default=120, help="time to save a checkpoint after SIGTERM", metavar="SECONDS"
    )
    _token: str = attrs.field(
        init=False, repr=False, factory=lambda: os.environ.get(TOKEN) or secrets.token_hex(16)
    )

    @property
    def secret_variables(self) -> dict[str, str]:
        """The variables of the Secret, among them the token that the workers prove to each other."""
        # A single worker joins no others. ``env`` may have a token, or the empty text: no token.
        token = {} if self.workers == 1 or TOKEN in self.env else {TOKEN: self._token}
        return {**token, **self.secret_env}

    @name.default
    def _of_script(self) -> str:
        return label_of(self.script)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        # The name of a pod's host has the index, too.
        longest = _LONGEST_LABEL - 1 - len(str(self.workers - 1))
        _name("name", self.name, _LABEL, longest)
        _name("namespace", self.namespace, _LABEL, _LONGEST_LABEL)
        _name("volume", self.volume, _SUBDOMAIN, 253)
        if (self.volume is None) != (self.run_dir is None):
            raise ArgumentError(
                "`volume` and `run_dir` belong together: the claim of a volume, and the folder of the "
                "checkpoints in it.",
                received=f"volume={self.volume!r} and run_dir={self.run_dir!r}",
                fix='Pass for example volume="checkpoints", run_dir="digits".',
            )
        if self.gpus_per_worker > 1 and self.workers > 1:
            raise ArgumentError(
                "Each of several workers trains on one GPU.",
                received=f"gpus_per_worker={self.gpus_per_worker} and workers={self.workers}",
                fix=f"Pass gpus_per_worker=1 and workers={self.gpus_per_worker * self.workers}.",
            )
