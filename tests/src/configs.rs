//! Configurations that several tests run.

/// Every kind of stage, one-second windows.
pub const EVERYTHING: &str = "
version: 1
server: {}
models:
  text: { backends: [ { kind: embedded, model: smollm2-135m } ] }
stages:
  frames:  { kind: frames,     from: source.video, fps: 5 }
  objects: { kind: detect,     from: frames, track: true }
  scenes:  { kind: scene,      from: frames, fps: 1 }
  screen:  { kind: ocr,        from: frames, fps: 1 }
  safety:  { kind: safety,     from: frames, fps: 1 }
  speech:  { kind: transcribe, from: source.audio }
  tone:    { kind: sentiment,  from: speech }
  meaning: { kind: understand, from: [speech, screen], model: text, categories: [politics, transport, sports, music] }
  fused:
    kind: fuse
    from: [objects, scenes, screen, safety, speech, tone, meaning]
    window: 1s
    alerts:
      people: \"vision.objects.filter(o, o.label == 'person').size() > 2\"
      boarding: \"vision.text.exists(line, line.text.contains('BOARDING'))\"
";

/// Eyes and ears without the language model, one-second windows, streams named in the file: what a live test can
/// afford on two cores. `{streams}` is to be replaced by a list of streams.
pub const LIVE: &str = "
version: 1
server: {}
streams: {streams}
stages:
  frames:  { kind: frames,     from: source.video, fps: 2 }
  objects: { kind: detect,     from: frames }
  speech:  { kind: transcribe, from: source.audio }
  fused:   { kind: fuse, from: [objects, speech], window: 1s }
";

/// One window per clip, pictures only.
pub const CLIPS: &str = "
version: 1
server: {}
stages:
  frames:  { kind: frames, from: source.video, fps: 2 }
  objects: { kind: detect, from: frames }
  fused:   { kind: fuse, from: objects, window: clip }
";

/// [`LIVE`] for `--input`.
pub const LIVE_ON_FILES: &str = "
version: 1
server: {}
stages:
  frames:  { kind: frames,     from: source.video, fps: 2 }
  objects: { kind: detect,     from: frames }
  speech:  { kind: transcribe, from: source.audio }
  fused:   { kind: fuse, from: [objects, speech], window: 1s }
";

/// Ears only, one-second windows.
pub const EARS: &str = "
version: 1
server: {}
stages:
  speech: { kind: transcribe, from: source.audio }
  fused:  { kind: fuse, from: speech, window: 1s }
";

/// What a clip is about, from what is written on it and beside it.
pub const MEANING: &str = "
version: 1
server: {}
models:
  text: { backends: [ { kind: embedded, model: smollm2-135m } ] }
stages:
  frames:  { kind: frames, from: source.video, fps: 1 }
  screen:  { kind: ocr, from: frames }
  meaning: { kind: understand, from: screen, model: text, categories: [sports, transport, cooking] }
  fused:   { kind: fuse, from: [screen, meaning], window: clip }
";

/// What is said and what it is about by the language model alone, one-second windows.
pub const TALK: &str = "
version: 1
server: {}
models:
  text: { backends: [ { kind: embedded, model: smollm2-135m } ] }
stages:
  speech:  { kind: transcribe, from: source.audio }
  meaning: { kind: understand, from: speech, model: text, category_by: likelihood, categories: [politics, sports] }
  fused:   { kind: fuse, from: [speech, meaning], window: 1s }
";

/// [`EARS`] with ten answers a second.
pub const MANY_ANSWERS: &str = "
version: 1
server: {}
stages:
  speech: { kind: transcribe, from: source.audio }
  fused:  { kind: fuse, from: speech, window: 100ms }
";
