"""The participants behind a Flower grid: which nodes they are, and their updates."""

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from torch import nn

from gradveil.errors import GradveilError
from gradveil.federated.checking import MOST_IMAGES
from gradveil.federated.flower.messages import UpdateRequest, update_from_records
from gradveil.federated.flower.setup import NUMBER
from gradveil.federated.participant import Update
from gradveil.federated.plan import FederatedPlan

logger = logging.getLogger(__name__)

# Seconds between two polls: a fifth of the time waited so far, so that quick answers do not wait and a SuperLink is not asked
# all the time. Flower's own loop polls every 3.
SHORTEST_POLL, LONGEST_POLL = 0.02, 1.0


@dataclass
class Nodes:
    """The nodes of a grid as participants of a plan: number `partition-id` each.

    A round waits at most `timeout` seconds. For those who did not answer the last time it waits no longer than twice the time
    that the others take. So a dead node costs one timeout, and a slow one gets back in. Nodes that come later, or come back, are
    asked for their number and take part from the next round on.
    """

    grid: Grid
    plan: FederatedPlan
    timeout: float
    # Set from outside when nobody wants the result any more.
    stopped: threading.Event = field(default_factory=threading.Event)
    # Participant -> node.
    places: dict[int, int] = field(default_factory=dict)
    # Participant -> why it did not answer the last time.
    silent: dict[int, str] = field(default_factory=dict)
    _met: set[int] = field(default_factory=set)
    # Message -> node that was asked for its number.
    _asked: dict[str, int] = field(default_factory=dict)

    def wait(self, seconds: float, *, resumed: bool = False) -> None:
        """Wait until every participant is there. A `resumed` training goes on without those who did not come back."""
        begun = time.monotonic()
        end = begun + seconds
        logger.info("waiting for %d participants", self.plan.participants)
        while missing := sorted(set(range(self.plan.participants)) - set(self.places)):
            if time.monotonic() > end:
                if resumed and self.places:
                    logger.warning("going on without participant %s", ", ".join(map(str, missing)))
                    return
                raise GradveilError(
                    f"{len(self.places)} of {self.plan.participants} participants came within {seconds:g} s, without "
                    f"{', '.join(map(str, missing[:10]))}; each needs a SuperNode with --node-config '{NUMBER}=NUMBER'"
                )
            self._meet()
            self._pause(begun, end)
        logger.info("all participants are there")

    def gather(self, number: int, chosen: Sequence[int], network: nn.Module) -> dict[int, Update]:
        """The updates of those who answer in round `number`: the `Gather` of the rounds."""
        self._meet()
        begun = time.monotonic()
        content = UpdateRequest(self.plan, number, network.state_dict()).to_records()
        waiting = self._send(MessageType.TRAIN, content, chosen, number)
        for one in set(chosen) - set(waiting.values()):
            self._note_silence(number, one, "has no node")
        updates: dict[int, Update] = {}
        end = begun + self.timeout
        while waiting and time.monotonic() < end:
            for reply in self.grid.pull_messages(waiting):
                one = waiting.pop(reply.metadata.reply_to_message_id)
                try:
                    updates[one] = update_from_records(_content(reply), network, most=self.plan.batch or MOST_IMAGES)
                    self.silent.pop(one, None)
                except GradveilError as error:
                    self._note_silence(number, one, str(error))
            if updates and set(waiting.values()) <= set(self.silent):
                end = min(end, begun + 2 * (time.monotonic() - begun))
            if waiting:
                self._meet()
                self._pause(begun, end)
        for one in waiting.values():
            self._note_silence(number, one, f"no answer within {end - begun:.0f} s")
        if chosen and not updates and set(self.silent) >= set(self.places):
            one = min(self.silent)
            raise GradveilError(
                f"round {number}: there is nobody left to train with (participant {one}: {self.silent[one]}); mend it and start "
                "again, the training goes on where it was"
            )
        logger.info("round %d of %d: %d updates", number + 1, self.plan.rounds, len(updates))
        return updates

    def _meet(self) -> None:
        """Ask new nodes for their number, and read the answers that are there; waits for nobody."""
        fresh = [node for node in self.grid.get_node_ids() if node not in self._met]
        if fresh:
            self._met.update(fresh)
            messages = [Message(RecordDict(), node, MessageType.QUERY, ttl=3600, group_id="who") for node in fresh]
            self.grid.push_messages(messages)
            self._asked |= {one.metadata.message_id: one.metadata.dst_node_id for one in messages}
        if not self._asked:
            return
        for reply in self.grid.pull_messages(list(self._asked)):
            node = self._asked.pop(reply.metadata.reply_to_message_id)
            try:
                self._place(node, _content(reply))
            except GradveilError as error:
                logger.warning("node %d does not take part: %s", node, error)

    def _place(self, node: int, content: RecordDict) -> None:
        number = content.config_records.get("facts", ConfigRecord()).get(NUMBER)
        if type(number) is not int or not 0 <= number < self.plan.participants:
            raise GradveilError(
                f"its {NUMBER} is {number!r}; {self.plan.participants} participants have 0 to {self.plan.participants - 1}"
            )
        if number in self.places:
            logger.warning("participant %d is node %d from now on", number, node)
        self.places[number] = node
        self.silent.pop(number, None)

    def _send(self, kind: str, content: RecordDict, chosen: Iterable[int], number: int) -> dict[str, int]:
        """Send `content` to the chosen participants; gives message -> participant of those that could be sent."""
        # What nobody waits for any more is not worth a node's time: the messages die soon after the round.
        messages = {
            one: Message(content, self.places[one], kind, ttl=2 * self.timeout, group_id=str(number))
            for one in chosen
            if one in self.places
        }
        pushed = set(self.grid.push_messages(list(messages.values())))
        named = {message.metadata.message_id: one for one, message in messages.items()}
        return {message: one for message, one in named.items() if message in pushed}

    def _note_silence(self, number: int, one: int, why: str) -> None:
        self.silent[one] = why
        logger.warning("round %d: participant %d: %s", number, one, why)

    def _pause(self, begun: float, end: float) -> None:
        now = time.monotonic()
        left = max(end - now, SHORTEST_POLL)
        if self.stopped.wait(min(max((now - begun) / 5, SHORTEST_POLL), LONGEST_POLL, left)):
            raise GradveilError("the training was stopped; start again and it goes on where it was")


def _content(reply: Message) -> RecordDict:
    """The content of a reply; an error in one line where it failed."""
    if reply.has_error():
        reason = f"{reply.error.reason or reply.error.code}"
        # Our own message is at the end of a long traceback.
        own = reason.rpartition("GradveilError: ")[2] if "GradveilError: " in reason else reason
        raise GradveilError(" ".join(own.split())[:500])
    return reply.content
