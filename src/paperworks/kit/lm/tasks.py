"""Tasks whose answers a program can check, split so that nothing of the test is seen in training."""

from __future__ import annotations

import ast
import hashlib
import re
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

Part = Literal["train", "test"]


@dataclass(frozen=True)
class Problem:
    """A prompt, one right answer, and the key by which the task is split."""

    prompt: str
    answer: str
    key: str


class Task(ABC):
    """A distribution of problems with an exact checker.

    The key of a problem alone says, by a hash, on which side it stands: the sides are disjoint by construction,
    whatever is drawn, in whatever order.

    Args:
        test_fraction: Expected share of keys in the test part, in (0, 1).
        salt: Another salt is another split.

    Raises:
        ValueError: `test_fraction` outside (0, 1).
    """

    alphabet: str

    def __init__(self, test_fraction: float = 0.2, salt: int = 0) -> None:
        if not 0 < test_fraction < 1:
            raise ValueError(f"test_fraction is {test_fraction}: allowed is the open interval (0, 1)")
        self.test_fraction = test_fraction
        self.salt = salt

    @abstractmethod
    def draw(self, generator: np.random.Generator) -> Problem:
        """Draw a problem of either part."""

    @abstractmethod
    def check(self, problem: Problem, completion: str) -> bool:
        """Say whether `completion` solves `problem`, exactly."""

    def part(self, key: str) -> Part:
        """Say on which side a key stands."""
        digest = hashlib.blake2b(f"{self.salt}:{key}".encode(), digest_size=8).digest()
        return "test" if int.from_bytes(digest, "big") < self.test_fraction * 2**64 else "train"

    def sample(self, generator: np.random.Generator, part: Part, count: int) -> list[Problem]:
        """Draw `count` problems of one part, with replacement."""
        if part not in ("train", "test"):
            raise ValueError(f"part is {part!r}: allowed are 'train' and 'test'")
        problems: list[Problem] = []
        for _ in range(10_000 + 1_000 * count):
            if len(problems) == count:
                return problems
            problem = self.draw(generator)
            if self.part(problem.key) == part:
                problems.append(problem)
        raise ValueError(f"part {part!r} has hardly any problem: take another salt or test_fraction")


class Sums(Task):
    """a + b with `digits` digits each, zero-padded; a + b and b + a stand on the same side."""

    alphabet = "0123456789+="

    def __init__(self, digits: int = 2, test_fraction: float = 0.2, salt: int = 0) -> None:
        super().__init__(test_fraction, salt)
        if not 1 <= digits <= 18:
            raise ValueError(f"digits is {digits}: allowed are 1 to 18")
        self.digits = digits

    def problem(self, a: int, b: int) -> Problem:
        """Write the problem of two numbers."""
        width = self.digits
        return Problem(f"{a:0{width}}+{b:0{width}}=", f"{a + b:0{width + 1}}", f"{min(a, b)}+{max(a, b)}")

    def draw(self, generator: np.random.Generator) -> Problem:
        """Draw both numbers uniformly."""
        a, b = generator.integers(10**self.digits, size=2)
        return self.problem(int(a), int(b))

    def check(self, problem: Problem, completion: str) -> bool:
        """Compare with the sum, digit by digit."""
        return completion.strip() == problem.answer


def evaluate(expression: str) -> tuple[Fraction, Counter[int]] | None:
    """Value of an expression of + - * / and brackets, and the numbers in it; None where it is not one.

    Nothing is executed: the syntax tree is walked, and whatever is not one of the four operations is refused.
    """
    if len(expression) > 200 or not re.fullmatch(r"[0-9+\-*/() ]+", expression):
        return None
    numbers: Counter[int] = Counter()

    def walk(node: ast.expr) -> Fraction:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            numbers[node.value] += 1
            return Fraction(node.value)
        if not isinstance(node, ast.BinOp):
            raise ValueError("not an operation")
        left, right = walk(node.left), walk(node.right)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
        raise ValueError("not one of + - * /")

    try:
        return walk(ast.parse(expression.strip(), mode="eval").body), numbers
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


class Countdown(Task):
    """Reach a target with given numbers, each used exactly once; the multiset of numbers is the key."""

    alphabet = "0123456789+-*/() ,:="

    def __init__(self, count: int = 3, largest: int = 9, test_fraction: float = 0.2, salt: int = 0) -> None:
        super().__init__(test_fraction, salt)
        if count < 2 or largest < 1:
            raise ValueError(f"count is {count}, largest {largest}: allowed are count >= 2 and largest >= 1")
        self.count = count
        self.largest = largest

    def draw(self, generator: np.random.Generator) -> Problem:
        """Draw numbers and a random expression over them; its value, a whole number >= 0, is the target."""
        while True:
            numbers = [int(n) for n in generator.integers(1, self.largest + 1, size=self.count)]
            terms = [str(n) for n in numbers]
            while len(terms) > 1:
                i, j = sorted(int(n) for n in generator.choice(len(terms), size=2, replace=False))
                right, left = terms.pop(j), terms.pop(i)
                terms.append(f"({left}{'+-*/'[int(generator.integers(4))]}{right})")
            answer = terms[0][1:-1]
            found = evaluate(answer)
            if found is not None and found[0].denominator == 1 and found[0] >= 0:
                listed = sorted(numbers)
                return Problem(f"{','.join(map(str, listed))}:{found[0]}=", answer, ",".join(map(str, listed)))

    def check(self, problem: Problem, completion: str) -> bool:
        """Say whether the expression has the target's value and uses each number once."""
        given, target = problem.prompt.rstrip("=").split(":")
        found = evaluate(completion.strip())
        return found is not None and found == (Fraction(int(target)), Counter(map(int, given.split(","))))


class LookUps(Task):
    """Recall the value of a key among `pairs` pairs of a letter and a digit; the set of pairs is the split's key."""

    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789?="

    def __init__(self, pairs: int = 4, test_fraction: float = 0.2, salt: int = 0) -> None:
        super().__init__(test_fraction, salt)
        if not 1 <= pairs <= 26:
            raise ValueError(f"pairs is {pairs}: allowed are 1 to 26")
        self.pairs = pairs

    def draw(self, generator: np.random.Generator) -> Problem:
        """Draw different letters, any digits, and which letter is asked for."""
        letters = generator.choice(list(self.alphabet[:26]), size=self.pairs, replace=False)
        listed = [
            f"{letter}{digit}" for letter, digit in zip(letters, generator.integers(10, size=self.pairs), strict=True)
        ]
        asked = listed[int(generator.integers(self.pairs))]
        return Problem(f"{''.join(listed)}?{asked[0]}=", asked[1], "".join(sorted(listed)))

    def check(self, problem: Problem, completion: str) -> bool:
        """Compare with the value."""
        return completion.strip() == problem.answer
