//! The language engine's process. It reads requests from standard input and writes answers to standard output;
//! it ends when its standard input does, that is, when its parent is gone.
//!
//! Its neighbour is `embedded`, which starts it. A separate process because an assertion in C++ ends one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use media::{Clock, SystemClock};
use models::llama::{ContextSettings, LlamaContext, LlamaModel};
use rustix::process::{Resource, Rlimit};

use super::backend::{BackendError, EngineStats, ModelInfo};
use super::inbox::Inbox;
use super::plan::Limits;
use super::quantum::MICRO_BATCH;
use super::rank::HALVING_MS_DEFAULT;
use super::serve::{BRANCHES_MAX, CONTINUATION_TOKENS_MAX, Engine, KEPT_MAX, Places};
use super::task::{Bounds, Task};
use super::wire::{self, FromChild, Incoming, ToChild};

/// Answers that wait for the parent to read; full: the engine waits.
const ANSWERS_MAX: usize = 1024;
/// Prompt tokens of a step that an urgent request has to itself.
const CHUNK_URGENT_TOKENS: usize = 256;

/// Arguments of the engine's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildArgs {
    /// GGUF file.
    pub model: PathBuf,
    /// Compute threads.
    pub threads: u32,
    /// Cells of the pool, in tokens; longest prompt and answer together, unless the model was trained for less.
    pub context_tokens: u32,
    /// Cells that are kept of ended requests, for others to share, at most. They slow every step down: 1,000 of
    /// them a prompt by 14 %, an answer by 3 %.
    pub cache_tokens: u32,
    /// Requests that run at once.
    pub slots: u32,
    /// How many of these only urgent requests may take.
    pub slots_urgent: u32,
    /// Requests that wait; more are refused as `Busy`.
    pub queue: u32,
    /// Prompt tokens of a step, over all requests, at most; the quantum may allow fewer.
    pub chunk_tokens: u32,
    /// Time that a step with prompt tokens is cut to stay under, by what steps cost lately; 0: no such limit.
    pub quantum_ms: u32,
    /// The same for the steps that one request has to itself: nobody's answer stalls for them, and longer pieces are
    /// read faster (measured, one thread, tokens/s by tokens of a step: 8: 143, 16: 177, 32: 193, 64: 217, 128: 230).
    pub quantum_alone_ms: u32,
    /// How long an idle engine waits for more requests before it starts with one that is not urgent.
    pub batch_window_ms: u32,
    /// Waiting time that halves the priority number of a request that waits; 0: it keeps it.
    pub halving_ms: u32,
    /// Added to the process's niceness.
    pub nice: i32,
    /// Limit on its address space; 0: none.
    pub memory_mb: u32,
}

impl ChildArgs {
    /// One thread, 8192 tokens (512 of them for sharing), steps of 60 ms (alone 300), 16 places (2 of them for urgent
    /// requests), 64 waiting.
    pub fn new(model: PathBuf) -> Self {
        ChildArgs {
            model,
            threads: 1,
            context_tokens: 8192,
            cache_tokens: 512,
            slots: 16,
            slots_urgent: 2,
            queue: 64,
            chunk_tokens: 128,
            quantum_ms: 60,
            quantum_alone_ms: 300,
            batch_window_ms: 0,
            halving_ms: HALVING_MS_DEFAULT,
            nice: 0,
            memory_mb: 0,
        }
    }

    /// As arguments on a command line.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args = vec![OsString::from("--model"), self.model.clone().into_os_string()];
        for (name, value) in self.numbers() {
            args.push(name.into());
            args.push(value.to_string().into());
        }
        args
    }

    fn numbers(&self) -> [(&'static str, i64); 13] {
        [
            ("--threads", self.threads.into()),
            ("--context-tokens", self.context_tokens.into()),
            ("--cache-tokens", self.cache_tokens.into()),
            ("--slots", self.slots.into()),
            ("--slots-urgent", self.slots_urgent.into()),
            ("--queue", self.queue.into()),
            ("--chunk-tokens", self.chunk_tokens.into()),
            ("--quantum-ms", self.quantum_ms.into()),
            ("--quantum-alone-ms", self.quantum_alone_ms.into()),
            ("--batch-window-ms", self.batch_window_ms.into()),
            ("--halving-ms", self.halving_ms.into()),
            ("--nice", self.nice.into()),
            ("--memory-mb", self.memory_mb.into()),
        ]
    }

    /// Reads what [`ChildArgs::to_args`] writes; what is left out has its default.
    ///
    /// # Errors
    /// Names the argument, what was found and what is known.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut parsed = ChildArgs::new(PathBuf::new());
        let mut args = args.into_iter();
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{} lacks its value", name.display()))?;
            if name == OsStr::new("--model") {
                parsed.model = value.into();
                continue;
            }
            let number = |min: i64, max: i64| {
                let found = value.to_str().and_then(|v| v.parse::<i64>().ok());
                found.filter(|n| (min..=max).contains(n)).ok_or_else(|| {
                    let (name, value) = (name.display(), value.display());
                    format!("{name} is {value}, expected {min} to {max}")
                })
            };
            let unsigned = |min, max| number(min, max).map(|n| n as u32);
            match name.to_str() {
                Some("--threads") => parsed.threads = unsigned(1, 512)?,
                Some("--context-tokens") => parsed.context_tokens = unsigned(64, 1 << 20)?,
                Some("--cache-tokens") => parsed.cache_tokens = unsigned(0, 1 << 20)?,
                Some("--slots") => parsed.slots = unsigned(1, 128)?,
                Some("--slots-urgent") => parsed.slots_urgent = unsigned(0, 127)?,
                Some("--queue") => parsed.queue = unsigned(1, 1 << 16)?,
                Some("--chunk-tokens") => parsed.chunk_tokens = unsigned(8, 4096)?,
                Some("--quantum-ms") => parsed.quantum_ms = unsigned(0, 60_000)?,
                Some("--quantum-alone-ms") => parsed.quantum_alone_ms = unsigned(0, 60_000)?,
                Some("--batch-window-ms") => parsed.batch_window_ms = unsigned(0, 50)?,
                Some("--halving-ms") => parsed.halving_ms = unsigned(0, 3_600_000)?,
                Some("--nice") => parsed.nice = number(-20, 19)? as i32,
                Some("--memory-mb") => parsed.memory_mb = unsigned(0, 1 << 30)?,
                _ => {
                    let known: Vec<&str> = parsed.numbers().iter().map(|n| n.0).collect();
                    let (name, known) = (name.display(), known.join(", "));
                    return Err(format!("unknown argument {name} (known: --model, {known})"));
                }
            }
        }
        if parsed.model.as_os_str().is_empty() {
            return Err("--model is missing".into());
        }
        if parsed.slots_urgent >= parsed.slots {
            let (urgent, slots) = (parsed.slots_urgent, parsed.slots);
            return Err(format!("--slots-urgent is {urgent}, expected less than --slots {slots}"));
        }
        Ok(parsed)
    }
}

/// Runs the engine until standard input ends. Standard output carries frames and nothing else.
pub fn run_child(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let outcome = ChildArgs::parse(args).and_then(|args| serve(&args));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent reads standard error and passes it on.
            eprintln!("language engine: {error}");
            ExitCode::from(2)
        }
    }
}

fn serve(args: &ChildArgs) -> Result<(), String> {
    let out = own_stdout().map_err(|e| format!("standard output: {e}"))?;
    limit_process(args)?;
    let clock = Arc::new(SystemClock::new());
    let model = LlamaModel::load(&args.model).map_err(|e| e.to_string())?;
    let chunk = args.chunk_tokens as usize;
    let batch = chunk.max(CHUNK_URGENT_TOKENS) + args.slots as usize;
    let sequences = args.slots as usize + KEPT_MAX + BRANCHES_MAX;
    let context = ContextSettings {
        n_ctx: args.context_tokens,
        n_seq: sequences as u32,
        n_batch: batch as u32,
        n_ubatch: MICRO_BATCH.min(batch) as u32,
        threads: args.threads,
        kv_unified: true,
    };
    let ctx = LlamaContext::new(Arc::clone(&model), context).map_err(|e| e.to_string())?;
    let ms = |n: u32| Duration::from_millis(n.into());
    let inbox = Arc::new(Inbox::new(args.queue as usize, ms(args.halving_ms), ctx.abort_flag()));
    let (to_parent, answers) = sync_channel(ANSWERS_MAX);

    let tokens_max = args.context_tokens.min(model.context_max().max(1));
    let text_of = |token| model.detokenise_special(token);
    let info = ModelInfo {
        context_tokens_max: tokens_max,
        vocabulary: model.vocabulary() as u32,
        chat_template: model.chat_template(),
        start_text: model.start_token().map(text_of).unwrap_or_default(),
        end_text: model.end_token().map(text_of).unwrap_or_default(),
    };
    let ready = FromChild::Ready { model: model.name().to_owned(), info };
    let engine = Engine::new(
        ctx,
        Arc::clone(&inbox),
        to_parent.clone(),
        Arc::clone(&clock),
        Places {
            slots: args.slots as usize,
            slots_urgent: args.slots_urgent as usize,
            cached_cells: args.cache_tokens as usize,
            window: ms(args.batch_window_ms),
            quantum_ms: args.quantum_ms.into(),
            quantum_alone_ms: args.quantum_alone_ms.into(),
        },
        Limits { chunk, chunk_urgent: CHUNK_URGENT_TOKENS, batch },
    );
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let failed = |e: std::io::Error| format!("a thread could not be started: {e}");
    let writer = thread("answers").spawn(move || write_answers(out, &answers)).map_err(failed)?;
    let engine = thread("engine").spawn(move || engine.run()).map_err(failed)?;

    let bounds =
        Bounds { tokens_max: tokens_max as usize, continuation_max: CONTINUATION_TOKENS_MAX };
    let front = Front { model, inbox: Arc::clone(&inbox), to_parent, bounds, clock };
    front.answer(ready);
    let outcome = front.read();
    inbox.close();
    drop(front);
    let panicked = engine.join().is_err();
    let _ = writer.join();
    if panicked { Err("the engine thread panicked".into()) } else { outcome }
}

/// The thread that reads requests; it answers at once what needs no step.
struct Front {
    model: Arc<LlamaModel>,
    inbox: Arc<Inbox>,
    to_parent: SyncSender<FromChild>,
    bounds: Bounds,
    clock: Arc<SystemClock>,
}

impl Front {
    fn read(&self) -> Result<(), String> {
        let mut from = BufReader::new(std::io::stdin().lock());
        loop {
            match wire::read::<ToChild>(&mut from) {
                Ok(Incoming::Message(message)) => self.handle(message),
                Ok(Incoming::Garbage { id, detail }) => {
                    let error = BackendError::BadRequest { detail };
                    self.answer(FromChild::Error { id, error });
                }
                Ok(Incoming::End) => return Ok(()),
                Err(e) => {
                    let error = BackendError::BadRequest { detail: e.to_string() };
                    self.answer(FromChild::Error { id: None, error });
                    return Err(e.to_string());
                }
            }
        }
    }

    fn handle(&self, message: ToChild) {
        let now = self.clock.now();
        let (id, task) = match message {
            ToChild::Generate { id, request } => {
                (id, Task::generate(&self.model, self.bounds, id, now, request))
            }
            ToChild::Score { id, request } => {
                (id, Task::score(&self.model, self.bounds, id, now, &request))
            }
            ToChild::Cancel { id } => return self.inbox.cancel(id),
            ToChild::Pause { id } => return self.inbox.pause(id),
            ToChild::Resume => return self.inbox.resume(),
            ToChild::DropCaches { .. } => return self.inbox.drop_caches(),
            ToChild::Tokenize { id, text, special } => {
                let tokens = self.model.tokenise(&text, special);
                return self.answer(match tokens {
                    Ok(tokens) => FromChild::Tokens { id, tokens },
                    Err(e) => {
                        let error = BackendError::BadRequest { detail: e.to_string() };
                        FromChild::Error { id: Some(id), error }
                    }
                });
            }
            ToChild::Detokenize { id, tokens } => {
                let text = self.model.detokenise(&tokens);
                return self.answer(FromChild::Whole { id, text });
            }
            ToChild::Health { id } => {
                let stats = EngineStats { resident_mb: resident_mb(), ..self.inbox.stats(now) };
                return self.answer(FromChild::Health { id, stats });
            }
        };
        if let Err(error) = task.and_then(|task| self.inbox.push(task)) {
            self.answer(FromChild::Error { id: Some(id), error });
        }
    }

    fn answer(&self, message: FromChild) {
        // Fails only when the writer has ended because the parent is gone; the next read says so.
        let _ = self.to_parent.send(message);
    }
}

fn write_answers(out: File, answers: &Receiver<FromChild>) {
    let mut out = BufWriter::new(out);
    while let Ok(message) = answers.recv() {
        if wire::write(&mut out, &message).is_err() {
            // The parent is gone. Standard input ends as well, which ends the process.
            return;
        }
    }
}

/// Takes standard output for frames alone: whatever a library prints goes to standard error.
fn own_stdout() -> std::io::Result<File> {
    let own = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3)?;
    rustix::stdio::dup2_stdout(std::io::stderr())?;
    Ok(File::from(own))
}

fn limit_process(args: &ChildArgs) -> Result<(), String> {
    if args.nice != 0 {
        rustix::process::nice(args.nice).map_err(|e| format!("--nice {}: {e}", args.nice))?;
    }
    if args.memory_mb > 0 {
        let bytes = u64::from(args.memory_mb) << 20;
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        rustix::process::setrlimit(Resource::As, limit)
            .map_err(|e| format!("--memory-mb {}: {e}", args.memory_mb))?;
    }
    Ok(())
}

/// Resident memory of this process; 0 where `/proc` is absent.
fn resident_mb() -> u32 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|s| s.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()));
    let bytes = pages.unwrap_or(0) * rustix::param::page_size() as u64;
    u32::try_from(bytes >> 20).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_survive_the_way() {
        let mut args = ChildArgs::new("a b.gguf".into());
        args.nice = -3;
        args.memory_mb = 900;
        assert_eq!(ChildArgs::parse(args.to_args()), Ok(args));
    }

    #[test]
    fn wrong_arguments_are_named() {
        let parse = |args: &[&str]| ChildArgs::parse(args.iter().map(OsString::from)).unwrap_err();
        assert_eq!(parse(&["--threads", "0"]), "--threads is 0, expected 1 to 512");
        assert_eq!(parse(&["--threads"]), "--threads lacks its value");
        assert_eq!(parse(&[]), "--model is missing");
        assert!(parse(&["--modle", "x"]).contains("known: --model, --threads"));
        assert!(parse(&["--model", "x", "--slots", "2"]).contains("expected less than"));
    }
}
