"""The next prompt: what was sampled, the observation, and what to do when it is too long."""

from __future__ import annotations

from typing import cast

from selfdistill_cli.core.protocols import Chat
from selfdistill_cli.core.types import Finish, Message, Stop
from selfdistill_cli.rollout.players import Player, PlayLimits

LEFT_OUT = "(left out)"


def prepare_next_turn(player: Player, chat: Chat, settings: PlayLimits) -> None:
    """Append the sampled ids and the observation's ids; where there is no room, do as told.

    overflow=stop ends the episode. overflow=drop_oldest writes the conversation again without its
    oldest observations, and then without its oldest exchanges: the new prompt does not extend the
    tokens so far, so that the trajectory becomes two samples, each exactly what the model saw.
    """
    turn = player.turns[-1]
    said = cast(Message, {"role": "assistant", "content": turn.text})
    player.messages += [said, *turn.observation]
    added = chat.observation_ids(turn.observation, turn.generation.finish is Finish.STOP)
    prompt_ids = [*player.prompt_ids, *turn.generation.action_ids, *added]
    room = settings.max_context_tokens - settings.max_new_tokens
    if len(prompt_ids) > room and settings.overflow == "drop_oldest":
        prompt_ids = _without_oldest(player, chat, room) or prompt_ids
    if len(prompt_ids) > room:
        player.stop = Stop.MAX_TOKENS
    player.prompt_ids = prompt_ids


def _without_oldest(player: Player, chat: Chat, room: int) -> list[int] | None:
    """Shorten the conversation from its oldest end until it fits; None if it never does.

    Observations are left out one by one, then whole exchanges. The task, the newest action and
    its observation stay.
    """
    for shorten in (_leave_out_observation, _forget_exchange):
        while shorten(player.messages, player.num_task_messages):
            prompt_ids = chat.prompt_ids(player.messages)
            if len(prompt_ids) <= room:
                return prompt_ids
    return None


def _leave_out_observation(messages: list[Message], start: int) -> bool:
    """Replace the text of the oldest observation before the newest action; False if none is."""
    first, last = _answers(messages, start)
    for i in range(first + 1, last):
        if messages[i]["role"] != "assistant" and messages[i]["content"] != LEFT_OUT:
            messages[i] = Message(role=messages[i]["role"], content=LEFT_OUT)
            return True
    return False


def _forget_exchange(messages: list[Message], start: int) -> bool:
    """Remove the oldest action with its observations; False if it is the newest one."""
    first, last = _answers(messages, start)
    if first == last:
        return False
    end = next(i for i in range(first + 1, last + 1) if messages[i]["role"] == "assistant")
    del messages[first:end]
    return True


def _answers(messages: list[Message], start: int) -> tuple[int, int]:
    """Where the first and the last action stand, the task's own messages left aside."""
    places = [i for i in range(start, len(messages)) if messages[i]["role"] == "assistant"]
    return places[0], places[-1]
