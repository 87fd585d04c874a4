"""Prints fused answers as they come. Needs one package: pip install websockets, or apt install python3-websockets."""
import asyncio, json, sys, websockets

async def main(url):
    async with websockets.connect(url, max_size=None) as socket:
        async for message in socket:
            answer = json.loads(message)
            if answer["schema"] != "fused-result/1":  # besides results there are gap and stream messages
                continue
            seen = [o["label"] for o in (answer["vision"] or {}).get("objects", [])]
            said = [s["text"] for s in (answer["audio"] or {}).get("speech", [])]
            about = (answer["text"] or {}).get("category")
            print(answer["stream"], answer["window"]["start_ms"], "ms", answer["status"], seen, said, about)

asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "ws://127.0.0.1:8080/v1/results"))
