"""Benchmarks: a grid of cells, each run to one row of an append-only store.

recipe → `recipe.plan` → cells → `local.run` or `ray.run` → `store.Store` → rows → `steep.report`

`spec`, `rows` and `store` import no torch, so that a report can be made where there is none.
"""
