"""Whether a conversation is ranked as well in other languages as in English: recall of facts, in process.

python -m tests.bench.languages [--budget SHARE] [--across]

Each conversation is made here: people tell where they keep, bought or lost things, between turns of chatter. Each fact
is then asked for in other words, and in other forms of the same words. Every language has the same facts in the same
turns: with --across, each conversation is asked about in the other languages.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.apis.openai_chat import request
from proxy.cache.counts import LocalCounts
from proxy.config.rules import load_rules
from proxy.fit.plan import plan
from proxy.model.limits import Window
from proxy.model.plan import Facts
from proxy.tokens.meter import meter_for

WAYS = 3  # of asking
TURNS, EVERY = 420, 7  # turns of a conversation, and every how many of them one states a fact


@dataclass(frozen=True, slots=True)
class Language:
    """`things`: (as facts name it, as questions name it). `facts`: (statement, question) with {thing} and {place}.
    `follow`: a follow-up without content. `wrap`: courtesy around a question, {q}."""

    things: tuple[tuple[str, str], ...]
    places: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    chatter: tuple[str, ...]
    follow: str
    wrap: str


LANGUAGES = {
    "en": Language(
        (
            ("lanterns", "lantern"),
            ("umbrella", "umbrellas"),
            ("violin", "violins"),
            ("tickets", "ticket"),
            ("suitcase", "suitcases"),
            ("candles", "candle"),
            ("blanket", "blankets"),
            ("camera", "cameras"),
            ("skates", "skate"),
            ("teapot", "teapots"),
        ),
        ("the cellar", "the market", "the attic", "the office", "the station", "the garden"),
        (
            ("I have kept the {thing} in {place} since the spring.", "Where are the {thing} that I was keeping?"),
            (
                "We bought the {thing} at {place} from an old man.",
                "From whom did we get the {thing} when we were buying?",
            ),
            ("She lost the {thing} near {place} on Monday.", "When did the loss of the {thing} happen?"),
        ),
        (
            "That is what I thought too, and I would do it again if we had the time for it.",
            "You know how it is, there is always something that has to be done before the evening.",
            "I do not know what they want, but it was nice of them to call us about {place}.",
            "Then we had a coffee near {place} and talked about the weather for an hour.",
            "It is late and I am tired, so let us talk about that tomorrow.",
        ),
        "Are you sure?",
        "Sorry to disturb you again with this. {q} Many thanks for the help!",
    ),
    "de": Language(
        (
            ("Laternen", "Laterne"),
            ("Regenschirm", "Regenschirme"),
            ("Geige", "Geigen"),
            ("Fahrkarten", "Fahrkarte"),
            ("Koffer", "Koffern"),
            ("Kerzen", "Kerze"),
            ("Decke", "Decken"),
            ("Kamera", "Kameras"),
            ("Schlittschuhe", "Schlittschuhen"),
            ("Teekanne", "Teekannen"),
        ),
        ("dem Keller", "dem Markt", "dem Dachboden", "dem Büro", "dem Bahnhof", "dem Garten"),
        (
            (
                "Die {thing} habe ich seit dem Frühling in {place} aufbewahrt.",
                "Wo ist das mit {thing}, was ich aufbewahre?",
            ),
            ("Die {thing} haben wir auf {place} bei einem alten Mann gekauft.", "Bei wem war der Kauf von {thing}?"),
            ("Sie hat die {thing} am Montag bei {place} verloren.", "Wann ging das mit {thing} denn verloren?"),
        ),
        (
            "Das habe ich mir auch gedacht, und ich würde es wieder so machen, wenn wir die Zeit dafür hätten.",
            "Du weißt ja, wie das ist, es gibt immer etwas, was vor dem Abend noch gemacht werden muss.",
            "Ich weiß nicht, was die wollen, aber es war nett, dass sie uns wegen {place} angerufen haben.",
            "Dann haben wir bei {place} einen Kaffee getrunken und eine Stunde über das Wetter geredet.",
            "Es ist spät und ich bin müde, also lass uns morgen darüber reden.",
        ),
        "Bist du sicher?",
        "Entschuldige, dass ich dich damit noch einmal störe. {q} Vielen Dank für die Hilfe!",
    ),
    "fr": Language(
        (
            ("lanternes", "lanterne"),
            ("parapluie", "parapluies"),
            ("violon", "violons"),
            ("billets", "billet"),
            ("valise", "valises"),
            ("bougies", "bougie"),
            ("couverture", "couvertures"),
            ("caméra", "caméras"),
            ("patins", "patin"),
            ("théière", "théières"),
        ),
        ("la cave", "le marché", "le grenier", "le bureau", "la gare", "le jardin"),
        (
            ("J'ai gardé les {thing} dans {place} depuis le printemps.", "Où est-ce que je gardais donc {thing} ?"),
            (
                "Nous avons acheté les {thing} vers {place} chez un vieil homme.",
                "Chez qui a eu lieu notre achat de {thing} ?",
            ),
            ("Elle a perdu les {thing} près de {place} lundi.", "Quand est arrivée la perte de {thing} ?"),
        ),
        (
            "C'est ce que je pensais aussi, et je le referais si nous avions le temps pour cela.",
            "Tu sais comment c'est, il y a toujours quelque chose qui doit être fait avant le soir.",
            "Je ne sais pas ce qu'ils veulent, mais c'était gentil de nous appeler pour {place}.",
            "Ensuite nous avons pris un café près de {place} et parlé du temps pendant une heure.",
            "Il est tard et je suis fatigué, alors parlons de cela demain.",
        ),
        "Tu es sûr ?",
        "Pardon de te déranger encore une fois avec ça. {q} Merci beaucoup pour ton aide !",
    ),
    "es": Language(
        (
            ("linternas", "linterna"),
            ("paraguas", "paraguas"),
            ("violín", "violines"),
            ("billetes", "billete"),
            ("maleta", "maletas"),
            ("velas", "vela"),
            ("manta", "mantas"),
            ("cámara", "cámaras"),
            ("patines", "patín"),
            ("tetera", "teteras"),
        ),
        ("el sótano", "el mercado", "el desván", "la oficina", "la estación", "el jardín"),
        (
            ("He guardado las {thing} en {place} desde la primavera.", "¿Dónde es que yo guardaba {thing}?"),
            ("Compramos las {thing} por {place} a un señor mayor.", "¿A quién le hicimos la compra de {thing}?"),
            ("Ella perdió las {thing} cerca de {place} el lunes.", "¿Cuándo ocurrió la pérdida de {thing}?"),
        ),
        (
            "Eso es lo que yo pensaba también, y lo haría otra vez si tuviéramos tiempo para ello.",
            "Ya sabes cómo es, siempre hay algo que tiene que hacerse antes de la noche.",
            "No sé lo que quieren, pero fue amable que nos llamaran por {place}.",
            "Luego tomamos un café cerca de {place} y hablamos del tiempo durante una hora.",
            "Es tarde y estoy cansado, así que hablemos de eso mañana.",
        ),
        "¿Estás seguro?",
        "Perdona que te moleste otra vez con esto. {q} ¡Muchas gracias por la ayuda!",
    ),
    "ru": Language(
        (
            ("фонари", "фонарях"),
            ("зонтик", "зонтике"),
            ("скрипку", "скрипке"),
            ("билеты", "билетах"),
            ("чемодан", "чемодане"),
            ("свечи", "свечах"),
            ("одеяло", "одеяле"),
            ("камеру", "камере"),
            ("коньки", "коньках"),
            ("чайник", "чайнике"),
        ),
        ("подвале", "рынке", "чердаке", "офисе", "вокзале", "саду"),
        (
            ("С весны {thing} у меня хранится там, в {place}.", "Где это я хранил, если речь о {thing}?"),
            ("Мы купили {thing} на {place} у одного старика.", "У кого была покупка, если речь о {thing}?"),
            ("Она потеряла {thing} в {place} в понедельник.", "Когда была потеря, если речь о {thing}?"),
        ),
        (
            "Я тоже так подумал, и сделал бы это снова, если бы у нас было на это время.",
            "Ты же знаешь, как это бывает, всегда что-то надо сделать ещё до вечера.",
            "Я не знаю, чего они хотят, но было мило, что они позвонили нам о {place}.",
            "Потом мы пили кофе в {place} и целый час говорили о погоде.",
            "Уже поздно, и я устал, так что давай поговорим об этом завтра.",
        ),
        "Ты уверен?",
        "Извини, что снова беспокою тебя этим. {q} Большое спасибо за помощь!",
    ),
    "zh": Language(
        tuple((thing, thing) for thing in "灯笼 雨伞 小提琴 车票 行李箱 蜡烛 毛毯 照相机 溜冰鞋 茶壶".split()),
        ("地下室", "市场", "阁楼", "办公室", "车站", "花园"),
        (
            ("从春天起我就把{thing}放在{place}里了。", "我的{thing}收在哪儿了？"),
            ("我们在{place}向一位老人买了{thing}。", "{thing}是从谁那里买来的？"),
            ("她星期一在{place}附近丢了{thing}。", "{thing}是什么时候丢的？"),
        ),
        (
            "我也是这么想的，如果我们有时间的话，我还会再做一次。",
            "你知道的，晚上之前总是有些事情要做完。",
            "我不知道他们想要什么，不过他们为了{place}打电话给我们，真好。",
            "然后我们在{place}旁边喝了咖啡，聊了一个小时的天气。",
            "时间不早了，我也累了，我们明天再谈这件事吧。",
        ),
        "你确定吗？",
        "不好意思，又来打扰你了。{q} 非常感谢你的帮助！",
    ),
}


def conversation(language: Language, seed: int) -> tuple[list[str], list[tuple[int, str]]]:
    """The turns, and the facts among them as (turn, question)."""
    dice = random.Random(seed)
    told, asked = [], []
    pairs = [(fact, thing) for fact in range(len(language.facts)) for thing in range(len(language.things))]
    dice.shuffle(pairs)
    for turn in range(TURNS):
        place = language.places[dice.randrange(len(language.places))]
        said = " ".join(dice.sample(language.chatter, 2))
        if turn % EVERY == 3 and pairs:
            fact, thing = pairs.pop()
            (statement, question), (stated, sought) = language.facts[fact], language.things[thing]
            asked.append((turn, question.format(thing=sought, place=place)))
            told.append(statement.format(thing=stated, place=place))
        else:
            told.append(said.format(place=place))
    return [f"{text} ({turn})" for turn, text in enumerate(told)], asked


def ways(language: Language, question: str) -> Iterator[tuple[str, list[str]]]:
    """The last messages of each way of asking; the user speaks first and last."""
    yield "plain", [question]
    yield "wrapped", [language.wrap.format(q=question)]
    yield "follow-up", [question, "…", language.follow]


def sent(texts: Sequence[str], budget: int, counts: LocalCounts) -> set[str]:
    """The texts that the chat ladder keeps within a budget of tokens."""
    talk = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    prompt = request.parse(json.dumps({"model": "gpt-4o", "max_tokens": 500, "messages": talk}).encode())
    facts = Facts(Window(budget + 500), meter_for(prompt, prompt.model, counts))
    return {message.text() for message in plan(prompt, load_rules(None).ladders["chat"], facts).draft.messages}


def recall(
    turns: Sequence[str], asked: Sequence[tuple[int, Sequence[str]]], share: float, counts: LocalCounts
) -> float:
    """The share of the facts that stay within a share of the conversation's tokens. `asked`: (turn, last messages)."""
    talk = [{"role": "user", "content": text} for text in turns]
    prompt = request.parse(json.dumps({"model": "gpt-4o", "messages": talk}).encode())
    budget = int(share * sum(meter_for(prompt, prompt.model, counts).costs(prompt.messages)))
    return sum(turns[turn] in sent([*turns, *last], budget, counts) for turn, last in asked) / len(asked)


def in_ways(language: Language, share: float, counts: LocalCounts) -> Iterator[float]:
    """The recall of each way of asking in the conversation's language."""
    turns, asked = conversation(language, 1)
    for way in range(WAYS):
        yield recall(turns, [(turn, list(ways(language, text))[way][1]) for turn, text in asked], share, counts)


def in_languages(talk: Language, share: float, counts: LocalCounts) -> Iterator[float]:
    """The recall of a conversation in one language when it is asked about in each."""
    turns, _ = conversation(talk, 1)
    for language in LANGUAGES.values():
        yield recall(turns, [(turn, [text]) for turn, text in conversation(language, 1)[1]], share, counts)


def main() -> None:
    """Prints a row for each language."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--budget", type=float, default=0.12, help="share of the conversation that is kept")
    arguments.add_argument("--across", action="store_true", help="asked about in the other languages")
    chosen = arguments.parse_args()
    columns = list(LANGUAGES) if chosen.across else ["plain", "wrapped", "follow-up"]
    print(f"| conversation | {' | '.join(columns)} |\n{'|---' * (len(columns) + 1)}|")
    measure, counts = in_languages if chosen.across else in_ways, LocalCounts()
    for name, language in LANGUAGES.items():
        figures = measure(language, chosen.budget, counts)
        print(f"| {name} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |", flush=True)


if __name__ == "__main__":
    main()
