"""Tells which of eight languages a text is in, by its function words.

The words of a row say nothing of a subject, and a question in another language than its conversation is asked without
them. A word of several rows counts for each by its share: "de" tells less than "und".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proxy.fit.relevance.text.reading import Reading
from proxy.fit.relevance.text.words import STOP, folded

# Function words of a language for each word of a text, from which it is in that language. Chats have .3 and more,
# questions .19, Danish .11 of the German ones, Dutch .05 of any; of the pairs of Chinese half are no words.
SPOKEN, SPOKEN_IN_PAIRS = 0.15, 0.08

# In lower case; a word with accents counts without them, too. Chinese in pairs of characters, as it is matched.
FUNCTION_WORDS: Mapping[str, frozenset[str]] = {"en": STOP} | {
    language: frozenset(form for word in words.split() for form in (word, folded(word)))
    for language, words in {
        "de": "der die das den dem des ein eine einen einem einer eines und oder aber nicht kein keine ich du er sie"
        " es wir ihr mich dich sich mir dir ihm ihn uns euch ihnen mein meine dein seine sein seinen seiner seinem"
        " ihre ihren ihrer ihrem unser ist sind war waren bin bist hat habe haben hatte hatten hast wird werden wurde"
        " wurden worden kann konnte können konnten muss musste soll sollte will wollte möchte darf durfte in im am an"
        " auf aus bei beim mit nach von vom vor zu zum zur für über unter um durch gegen ohne bis seit wegen als wie"
        " wenn dass ob weil da denn wer wen wem was wann wo wohin woher warum wieso weshalb welche welcher welches"
        " welchen welchem wessen womit woran wofür wovon worauf worüber wieviel viele auch noch schon nur sehr so"
        " dann doch mal man hier dort dieser diese dieses diesen diesem jetzt damit etwas gibt gab könnte müssen"
        " würde würden dürfen",
        "fr": "le la les l un une des du de d au aux et ou mais ne n pas plus je j tu il elle on nous vous ils elles"
        " me m te t se s lui leur leurs mon ma mes ton ta tes son sa ses notre nos votre vos ce c cet cette ces cela"
        " ça est sont était étaient suis es sommes êtes a ai as avons avez ont avait avaient été être avoir fait sera"
        " serait dans en par pour sur sous avec sans chez vers entre depuis après avant pendant que qu qui quoi dont"
        " quel quelle quels quelles quand comment pourquoi combien y lequel laquelle si comme aussi très déjà encore"
        " tout tous toute toutes peut doit va quelqu puis donc car ni à où même là",
        "es": "el la los las un una unos unas de del al y e o u pero no ni si yo tu ella ello nosotros ellos ellas"
        " usted ustedes me te se le les lo nos os mi mis su sus nuestro nuestra es son era eran soy eres fue fueron"
        " ser está están estaba estuvo he ha has han hemos habia hay haber sido en con por para sin sobre entre hasta"
        " desde hacia segun tras que quien quienes cual cuales cuando donde adonde como cuanto cuanta cuantos cuantas"
        " porque muy más también ya aún este esto estos estas ese esa eso esos esas aquel todo toda todos todas puede"
        " debe tiene hizo va él tú sí qué quién quiénes cuál cuáles cuándo dónde adónde cómo cuánto cuánta cuántos"
        " cuántas había esta tuvo hace",
        "it": "il lo la i gli le l un uno una di del dello della dei degli delle d a al allo alla ai agli alle da dal"
        " dalla dai dalle in nel nello nella nei nelle su sul sulla sui sulle con per tra fra e ed o ma non io tu lui"
        " lei noi voi loro mi ti si ci vi ne me te mio mia miei suo sua suoi sue nostro nostra vostro sono era erano"
        " sei siamo ho hai ha abbiamo hanno aveva avevano stato stata stati essere avere fatto che chi cosa cui quale"
        " quali quando dove come perché quanto quanta quanti quante dell all dall nell sull anche più già ancora"
        " molto tutto tutti questo questa questi queste quello quella quel può deve fa c è né cos qual sta stanno",
        "pt": "o a os as um uma uns umas de do da dos das em no na nos nas num numa ao aos pelo pela pelos pelas com"
        " por para sem sobre entre até desde e ou mas não eu tu ele ela eles elas você vocês me te se lhe lhes meu"
        " minha meus seu sua seus suas nosso nossa dele dela deles são era eram foi foram ser sou esta estão estava"
        " estavam esteve tem tinha ter tenho ha havia sido que quem qual quais quando onde como porque quanto quanta"
        " quantos quantas muito mais também já ainda este isto esse essa isso aquele aquela todo toda todos todas"
        " pode deve fez vai é à às quê há teve",
        "ru": "и в во не на я ты он она оно мы вы они что чтобы с со а но или у к ко о об от до за из по под над"
        " при про для без через как так это этот эта эти этого этой то тот та те же бы ли если когда где куда"
        " откуда почему зачем кто кого кому кем чем чего чему какой какая какое какие каких какую какого каким"
        " каком сколько был была было были есть быть будет его ее ей им их ему него нее них мне меня тебя мой"
        " моя свой свою своих своей своего себя уже еще только очень там тут вот да нет все всех весь мог может"
        " который которая которые",
        "zh": "我们 你们 他们 她们 我們 你們 他們 什么 什麼 怎么 怎麼 怎样 怎樣 为什 為什 哪里 哪裡 哪儿 哪个"
        " 哪個 哪些 哪一 谁的 多少 几个 幾個 多久 时候 時候 么时 麼時 这个 這個 那个 那個 这些 這些 那些 这里"
        " 那里 一个 一個 一些 没有 沒有 不是 就是 也是 还是 還是 是不 可以 能够 因为 因為 所以 但是 如果 虽然"
        " 而且 或者 已经 已經 现在 現在 以后 之后 之前 自己 的时 的是 了吗 了什 是什 是谁 是誰 是怎 在哪 有什"
        " 我的 你的 他的 她的 我也 你有 我在 很多 非常 一起 一下 觉得 知道 对于 关于 關於 以及 不会 会在 去了"
        " 过的 的人 了一",
    }.items()
}
_SPEAKS = {
    word: tuple(language for language, words in FUNCTION_WORDS.items() if word in words)
    for word in sorted(frozenset[str]().union(*FUNCTION_WORDS.values()))
}


def language_of(text: Reading) -> str:
    """The language of a text, as its code: one of `FUNCTION_WORDS`, or "" if these words do not tell."""
    if text.is_english:
        return "en"
    return _most(dict(zip(map(str.lower, text.tokens), text.times, strict=True)) | text.words, text.length)


def language_of_all(occurrences: Callable[[str], int], length: int) -> str:
    """The language of many texts of `length` words together. `occurrences`: of a word in them."""
    return _most({word: occurrences(word) for word in _SPEAKS}, length)


def _most(times: Mapping[str, int], length: int) -> str:
    found: dict[str, float] = {"": 0.0}
    for word, number in times.items():
        languages = _SPEAKS.get(word, ())
        for language in languages:
            found[language] = found.get(language, 0.0) + number / len(languages)
    best, *others = sorted(found, key=lambda language: -found[language])
    least = SPOKEN_IN_PAIRS if best == "zh" else SPOKEN
    clear = found[best] >= least * length and all(found[other] < found[best] for other in others)
    return best if clear else ""
