"""A feed of XML documents, and readers who ask XPath of them: brokers match the documents, readers get whole ones.

Start a broker with `veena broker run`, then run this; the URL of another broker may follow.
"""

import asyncio
import sys
from functools import partial

import veena

FEED = [
    "<entry id='1'><title>Rain over Syracuse</title><wind>18</wind><tag>weather</tag></entry>",
    "<entry id='2'><title>Storm at sea</title><wind>95</wind><tag>weather</tag><tag>alert</tag></entry>",
    "<entry id='3'><title>Grid conference opens</title><tag>science</tag><author name='Fox'/></entry>",
    "<m:entry id='4' xmlns:m='urn:mirror'><m:title>A mirrored entry</m:title></m:entry>",
]
READERS = {
    "alerts": "/entry[tag='alert' or wind > 90]",
    "by Fox": "//author[@name='Fox']",
    "all weather": "/entry[tag='weather']",
    "mirror": "/m:entry",
}


async def main(url: str) -> None:
    async with veena.connect(url) as feed, veena.connect(url) as readers:
        last = asyncio.Event()

        def show(name: str, event: veena.Event) -> None:
            print(f"{name:12} <- {event.xml}")
            if name == "mirror":
                last.set()

        for name, xpath in READERS.items():  # a function is called with every event, instead of a loop that takes them
            await readers.subscribe(xpath=xpath, namespaces={"m": "urn:mirror"}, on_event=partial(show, name))
        for document in FEED:
            await feed.publish(xml=document)
        await asyncio.wait_for(last.wait(), 5.0)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "veena://127.0.0.1:7700"))
