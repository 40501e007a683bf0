"""One gateway process, assembled: what its routes need, started and stopped in the right order.

It listens to the registry, keeps connections to the replicas, keeps the request record. It holds no weights
and never imports torch.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import db.feedback
import db.keys
import db.requests
from db.database import Database
from db.errors import DbError
from db.rows import FeedbackRecord, RequestRecord
from lora.background import BackgroundThreads
from lora.kept_rows import REGISTRY_FILE, KeptRows
from lora.registry import RegistrySnapshot
from lora.registry_source import DatabaseSource
from lora.stops import STOPS_FILE, StopsFile
from lora.store import ObjectStore, open_objects, open_store
from lora.watcher import RegistryWatcher
from serve.admin import AdapterAdmin
from serve.auth import Doorkeeper
from serve.batches.answerer import Answerer
from serve.batches.cleaning import Cleaning
from serve.batches.desk import Desk
from serve.batches.places import Places
from serve.batches.run import Tools
from serve.candidate import CandidateReader
from serve.conductor import Conductor
from serve.config import AppConfig
from serve.directory import GatewayReport, ReplicaReport, View
from serve.files import Files
from serve.fleet import Fleet
from serve.gathered_metrics import Health
from serve.kept_responses import KeptResponses
from serve.listing import Listing
from serve.metrics import Metrics, ServedAdapters
from serve.order import BACKGROUND_FROM
from serve.pins import Pins
from serve.prompts import Prompts
from serve.record import Recorder, SpoolWriter
from serve.record.keeper import Keeper
from serve.registry_writer import RegistryWriter
from serve.residency_record import ResidencyRecord
from serve.responder import Responder
from serve.routing import Router, load_model
from serve.upkeep import Upkeep
from serve.vectors import VectorMaker

FLUSH_S = 5.0
KEYS_EVERY_S = 2.0

Exchange = Callable[[GatewayReport], Awaitable[View]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DatabaseSink:
    """Where the recorder puts records."""

    database: Database

    def requests(self, records: Sequence[RequestRecord]) -> None:
        db.requests.insert_batch(self.database, records)

    def feedback(self, records: Sequence[FeedbackRecord]) -> None:
        db.feedback.insert_batch(self.database, records)


class Gateway:
    """Everything that the routes of one gateway use."""

    def __init__(self, config: AppConfig, token: str, exchange: Exchange) -> None:
        self.config = config
        self.id = f"gateway-{uuid4().hex[:8]}"
        self.database = Database(config.database_url)
        self.watcher = RegistryWatcher(
            DatabaseSource(config.database_url),
            kept=KeptRows(config.cache_root / REGISTRY_FILE),
            stops=StopsFile(config.cache_root / STOPS_FILE),
        )
        self.models = {model.name: load_model(model) for model in config.models}
        self.router = Router(self._snapshot, self.models)
        self.fleet = Fleet(
            lambda: exchange(GatewayReport(gateway=self.id, epoch=self._snapshot().epoch)), token
        )
        self.spool = SpoolWriter(config.spool_dir, max_bytes=config.spool_bytes)
        self.recorder = Recorder(self.spool, DatabaseSink(self.database))
        self.keeper = Keeper(self.spool)
        self.upkeep = Upkeep(self.database)
        self.metrics = Metrics(self._reports, self._health, self._served)
        self.prompts = Prompts()
        self.conductor = Conductor(self.router, self.fleet, self.keeper, self.metrics, self.prompts)
        self.kept_responses = KeptResponses(self.database, self.metrics.responses_not_kept)
        self.responder = Responder(self.conductor, self.kept_responses, config.keep_responses_days)
        self.vectors = VectorMaker(self.router, self.fleet, self.keeper, self.metrics)
        self.doorkeeper = Doorkeeper(config.admin_key, {} if config.require_api_key else None)
        self._keys: asyncio.Task[None] | None = None
        self.pins = Pins(self.fleet, self._snapshot)
        self.residency = ResidencyRecord(
            self.database, lambda: self.fleet.view.replicas, lambda: self.fleet.view.scribe == self.id
        )
        self.listing = Listing(self.database, self.fleet)
        self._files = BackgroundThreads(2, "adapter-files")
        self._objects = BackgroundThreads(4, "objects")
        objects = open_objects(config.store_url, config.s3)
        self.files = Files(self.database, objects, self._objects)
        self.desk = Desk(self.database, self._batch_tools(objects))
        self.cleaning = Cleaning(self.database, objects, self.files)
        self.admin = self._make_admin()

    async def start(self) -> None:
        """Raises DatabaseAway when there is no registry to route by, nor one that was kept on this machine.

        Where API keys are asked for they must be read as well: without the database nobody is let in.
        """
        await asyncio.to_thread(self.watcher.start)
        self.recorder.start()
        self.fleet.start()
        self.upkeep.start()
        self.pins.start()
        self.residency.start()
        self.cleaning.start()
        self.desk.start()
        if self.config.require_api_key:
            await self._read_keys()
            self._keys = asyncio.get_running_loop().create_task(self._follow_keys())

    async def close(self) -> None:
        """Called once no request is under way; what the database does not take now, the spool keeps."""
        if self._keys is not None:
            self._keys.cancel()
        await self.desk.close()
        await self.cleaning.close()
        self._files.close()
        self.kept_responses.close()
        self._objects.close()
        self.prompts.close()
        await self.residency.close()
        await self.pins.close()
        await self.upkeep.close()
        await self.fleet.close()
        await asyncio.to_thread(self.recorder.stop, FLUSH_S)
        self.spool.close()
        await asyncio.to_thread(self.watcher.close)
        await asyncio.to_thread(self.database.close)

    def max_model_len(self, base_model: str) -> int:
        """Tokens of prompt and completion together: what a replica has told, or what the settings allow."""
        told = [member.report.max_model_len for member in self.fleet.members(base_model)]
        return min(told) if told else self.models[base_model].max_model_len

    def health_report(self) -> dict[str, Any]:
        """unavailable: a base model has no replica. degraded: it serves, and something is away."""
        health = self._health()
        replicas = {model.name: len(self.fleet.members(model.name)) for model in self.config.models}
        lost = health.records_dropped + health.records_refused
        fine = health.database_ok and not (health.local_stops or lost or health.rows_stranded)
        status = "unavailable" if not all(replicas.values()) else "ok" if fine else "degraded"
        return {
            "status": status,
            "replicas": replicas,
            "database": {"ok": health.database_ok, "error": self.recorder.state.last_error},
            "registry": {"epoch": self._snapshot().epoch, "stale_s": round(health.registry_stale_s, 1)},
            "local_stops": self.watcher.local_stops,
            "records": {
                "spool_bytes": health.spool_bytes,
                "stored": health.records_stored,
                "dropped": health.records_dropped,
                "refused": health.records_refused,
                "stranded": health.rows_stranded,
            },
        }

    def _batch_tools(self, objects: ObjectStore) -> Tools:
        config = self.config

        def is_busy() -> bool:
            return self.fleet.ahead_of(BACKGROUND_FROM) > 0

        return Tools(
            self.database,
            objects,
            self._objects,
            Answerer(self.conductor, self.responder, self.vectors),
            Places(config.batch_lines, config.batch_lines_beside, is_busy),
            config.max_body_bytes,
        )

    def _make_admin(self) -> AdapterAdmin:
        return AdapterAdmin(
            CandidateReader(self.config, self.models, self._snapshot),
            RegistryWriter(self.database, self.fleet, self._snapshot),
            open_store(self.config.store_url, self.config.s3),
            self._files,
            self.fleet,
            self.pins,
            self._snapshot,
        )

    def _snapshot(self) -> RegistrySnapshot:
        return self.watcher.snapshot

    def _reports(self) -> list[ReplicaReport]:
        return [member.report for member in self.fleet.members()]

    def _served(self) -> ServedAdapters:
        snapshot = self._snapshot()
        return ServedAdapters(snapshot.adapters, snapshot.of_endpoints)

    def _health(self) -> Health:
        state = self.recorder.state
        return Health(
            database_ok=state.database_ok and not self.watcher.stale,
            registry_stale_s=self.watcher.age_s if self.watcher.stale else 0.0,
            local_stops=len(self.watcher.local_stops),
            spool_bytes=self.spool.bytes,
            records_stored=state.stored,
            records_dropped=self.keeper.dropped,
            records_refused=state.refused,
            rows_stranded=self.upkeep.stranded,
        )

    async def _read_keys(self) -> None:
        self.doorkeeper.set_keys(await asyncio.to_thread(db.keys.active, self.database))

    async def _follow_keys(self) -> None:
        """New keys work and revoked ones stop within KEYS_EVERY_S; without a database the last hold."""
        while True:
            await asyncio.sleep(KEYS_EVERY_S)
            try:
                await self._read_keys()
            except DbError as error:
                logger.warning("keys not read: %s", error, extra={"action": "keys_stale"})
