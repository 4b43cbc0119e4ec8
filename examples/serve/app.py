"""A classifier behind HTTP that adapts to the pictures it is asked about.

    uvicorn app:app --app-dir examples/serve

POST the bytes of a picture to /predict. There is one model that all requests adapt, so run one process of it.
"""

from __future__ import annotations

import asyncio
import io
import queue
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse
from PIL import Image

from steep.data.picture_files import picture
from steep.data.transform import Transform
from steep.errors import DataError
from worker import Question, Settings, Worker

Image.MAX_IMAGE_PIXELS = 25_000_000  # twice as many are refused before they are decoded


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start the worker; at the end let it answer what waits and save."""
    app.state.worker = worker = Worker(Settings.from_environment())
    worker.start()
    yield
    worker.ending.set()
    await asyncio.to_thread(worker.join)


app = FastAPI(title="steep", lifespan=lifespan)


@app.post("/predict")
async def predict(request: Request) -> dict[str, Any]:
    """Answer the picture in the body; the header X-Request-Id comes back as `id`."""
    worker: Worker = app.state.worker
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > worker.settings.most_bytes:
            raise HTTPException(413, f"expected at most {worker.settings.most_bytes} bytes")
    try:
        pixels = await asyncio.to_thread(picture, io.BytesIO(body), Transform(size=worker.settings.size))
    except DataError as error:
        raise HTTPException(422, str(error)) from error
    question = Question(request.headers.get("x-request-id"), pixels)
    try:
        worker.questions.put_nowait(question)
    except queue.Full:
        raise HTTPException(503, "too many pictures wait. Come again", {"Retry-After": "1"}) from None
    return await asyncio.wrap_future(question.answer)


@app.get("/metrics", response_class=PlainTextResponse)
def metrics() -> str:
    """Give Prometheus what it reads."""
    return app.state.worker.monitor.prometheus()


@app.get("/stats")
def stats() -> dict[str, Any]:
    """Give the same as JSON, and how many batches the state has seen, those before a restart included."""
    worker: Worker = app.state.worker
    state = {"state_batches": worker.batches, "resumed_at": worker.resumed_at, "saved_at": worker.saved_at}
    return {**worker.monitor.numbers(), **state, "waiting": worker.questions.qsize()}


@app.get("/healthz")
def healthz() -> dict[str, bool]:
    """Say whether the worker works."""
    if not app.state.worker.is_alive():
        raise HTTPException(503, "the worker has ended")
    return {"ok": True}
