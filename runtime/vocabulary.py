"""The vocabulary: which integer stands for which LaTeX token. Fixed in a checkpoint and in a bundle."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

PAD, SOS, EOS = 0, 1, 2
SPECIAL_TOKENS = ("<pad>", "<sos>", "<eos>")


@dataclass(frozen=True)
class Vocabulary:
    """LaTeX tokens in the order of their ids, after the three special ones (pad 0, sos 1, eos 2).

    Attributes:
        tokens: the LaTeX tokens, without the special ones; id of ``tokens[i]`` is ``i + 3``.
    """

    tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.tokens)) != len(self.tokens):
            raise ValueError("a vocabulary holds every token once")

    def __len__(self) -> int:
        """Number of ids, the special ones included: the width of the log-probabilities."""
        return len(self.tokens) + len(SPECIAL_TOKENS)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token to id, special tokens included."""
        return {token: i for i, token in enumerate((*SPECIAL_TOKENS, *self.tokens))}

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Ids of tokens, without sos and eos. Raises KeyError for a token that is not in the vocabulary."""
        return [self.ids[token] for token in tokens]

    def decode(self, ids: Sequence[int]) -> list[str]:
        """Tokens of ids up to the first eos; pad and sos are passed over."""
        tokens: list[str] = []
        for i in ids:
            if i == EOS:
                break
            if i >= len(SPECIAL_TOKENS):
                tokens.append(self.tokens[i - len(SPECIAL_TOKENS)])
        return tokens

    def to_json(self) -> str:
        """The canonical text whose sha256 names this vocabulary: a JSON array of the tokens."""
        return json.dumps(list(self.tokens), ensure_ascii=True, separators=(",", ":"))

    @cached_property
    def sha256(self) -> str:
        """Hex digest of ``to_json()``; stands in checkpoints, manifests and ONNX metadata."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


CROHME = Vocabulary(
    tuple(
        r"""! ( ) + , - . / 0 1 2 3 4 5 6 7 8 9 < = > A B C E F G H I L M N P R S T V X Y [ \Delta \Pi \alpha
        \beta \cdot \cdots \cos \div \exists \forall \frac \gamma \geq \in \infty \int \lambda \ldots \leq \lim
        \limits \log \mu \neq \phi \pi \pm \prime \rightarrow \sigma \sin \sqrt \sum \tan \theta \times \{ \} ]
        ^ _ a b c d e f g h i j k l m n o p q r s t u v w x y z { | }""".split()
    )
)
"""The usual 110 tokens of the CROHME offline task, in the usual order."""
