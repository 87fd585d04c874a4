#!/usr/bin/python3
"""Serves one H.264 (and AAC) MP4 file over RTSP on loopback, for tests.

    rtsp_server.py FILE [--port N] [--user NAME --password SECRET]

Paths: /loop plays the file again and again with continuing times, /once plays it to its end.
Prints one line `port N` when it accepts connections; ends when its standard input is closed.
Needs Debian's gir1.2-gst-rtsp-server-1.0, python3-gi and the GStreamer plugins base, good and bad.
"""

import argparse
import subprocess
import sys
import time

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402


def codecs(path):
    """Codec names of the file's tracks."""
    probe = ["ffprobe", "-v", "error", "-show_entries", "stream=codec_name", "-of", "csv=p=0", path]
    return subprocess.run(probe, check=True, capture_output=True, text=True).stdout.split()


def pipeline(path, with_sound):
    quoted = path.replace("\\", "\\\\").replace('"', '\\"')
    video = "demux.video_0 ! queue ! h264parse config-interval=-1 ! rtph264pay name=pay0 pt=96"
    audio = "demux.audio_0 ! queue ! aacparse ! rtpmp4gpay name=pay1 pt=97"
    parts = [f'filesrc location="{quoted}" ! qtdemux name=demux', video]
    return "( " + " ".join(parts + ([audio] if with_sound else [])) + " )"


class Loop:
    """Starts the file again at its end. A segment seek keeps the RTP times growing over the seam."""

    def __init__(self, media):
        self.element = media.get_element()
        media.connect("prepared", self.on_prepared)
        sink = self.element.get_by_name("pay0").get_static_pad("sink")
        sink.add_probe(Gst.PadProbeType.EVENT_DOWNSTREAM, self.on_event)

    def on_prepared(self, _media):
        self.seek(Gst.SeekFlags.FLUSH | Gst.SeekFlags.SEGMENT)
        # The server asserts that all tracks have their segment when a client plays; a flush takes it away for
        # a moment.
        payloaders = [self.element.get_by_name(name) for name in ("pay0", "pay1")]
        pads = [payloader.get_static_pad("src") for payloader in payloaders if payloader]
        until = time.monotonic() + 5
        while time.monotonic() < until and not all(
            pad.get_sticky_event(Gst.EventType.SEGMENT, 0) for pad in pads
        ):
            time.sleep(0.005)

    def seek(self, flags):
        start, none = Gst.SeekType.SET, Gst.SeekType.NONE
        self.element.seek(1.0, Gst.Format.TIME, flags, start, 0, none, -1)
        return False  # as an idle callback: not again

    def on_event(self, _pad, info):
        if info.get_event().type == Gst.EventType.SEGMENT_DONE:
            GLib.idle_add(self.seek, Gst.SeekFlags.SEGMENT)
        return Gst.PadProbeReturn.OK


def protect(server, factories, user, password):
    """Lets only this user in (basic authentication)."""
    role = "viewer"
    for factory in factories:
        permissions = GstRtspServer.RTSPPermissions()
        for what in ("access", "construct"):
            permissions.add_permission_for_role(role, f"media.factory.{what}", True)
        factory.set_permissions(permissions)
    token = GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", role)
    auth = GstRtspServer.RTSPAuth()
    auth.add_basic(GstRtspServer.RTSPAuth.make_basic(user, password), token)
    server.set_auth(auth)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--user")
    parser.add_argument("--password", default="")
    args = parser.parse_args()

    Gst.init(None)
    launch = pipeline(args.file, "aac" in codecs(args.file))
    factories = {}
    for path in ("/loop", "/once"):
        # Not shared: each client plays the file from its start.
        factories[path] = GstRtspServer.RTSPMediaFactory()
        factories[path].set_launch(launch)
    loops = []
    factories["/loop"].connect("media-configure", lambda _, media: loops.append(Loop(media)))

    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(str(args.port))
    for path, factory in factories.items():
        server.get_mount_points().add_factory(path, factory)
    if args.user:
        protect(server, factories.values(), args.user, args.password)
    if server.attach(None) == 0:
        sys.exit(f"port {args.port} can't be bound")

    main_loop = GLib.MainLoop()
    GLib.io_add_watch(sys.stdin.fileno(), GLib.IO_HUP | GLib.IO_IN, lambda *_: main_loop.quit())
    GLib.timeout_add_seconds(2, lambda: server.get_session_pool().cleanup() or True)
    print(f"port {server.get_bound_port()}", flush=True)
    main_loop.run()


if __name__ == "__main__":
    main()
