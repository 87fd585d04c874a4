//! `pipeline run` up to the point where the graph starts: the call's options and the configuration become one
//! [`Launch`], or a sentence about what is wrong. Opens the output and the resume record, and no media.

use std::path::{Path, PathBuf};

use actors::plan::StreamPlan;
use thiserror::Error;

use crate::config::{self, Context, Overrides, Problems};
use crate::inputs::{self, Clip, InputProblem};
use crate::output::{Output, OutputError, Target};
use crate::plan::{Plan, ServerPlan};
use crate::resume::{Resume, ResumeError};

/// What `pipeline run` was called with.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// The configuration.
    pub config: PathBuf,
    /// File, folder, pattern, URL, `-` (media on standard input) or a list (clips.jsonl). Takes the place of the
    /// configuration's streams. Repeatable.
    #[arg(long, value_name = "URI")]
    pub input: Vec<String>,
    /// One JSON result per line to this file, or to standard output with `-`.
    #[arg(long, value_name = "FILE|-")]
    pub output: Option<String>,
    /// Address and port of the server, in place of the configuration's.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Play files at their own pace, with deadlines, as if they were live.
    #[arg(long)]
    pub realtime: bool,
    /// One value of the configuration, such as `stages.frames.fps=2`. Repeatable.
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Record of finished clips: a killed run that is started again goes on where it was.
    #[arg(long, value_name = "STATE")]
    pub resume: Option<PathBuf>,
}

/// Everything that a run needs.
pub struct Launch {
    /// With the streams of `--input`, and without clips that are finished already.
    pub plan: Plan,
    /// For each of the plan's streams the clip it came from, for [`crate::output::OutputSender::finished`].
    pub clips: Vec<Clip>,
    /// None without `--output`.
    pub output: Option<Output>,
    /// Whether results are to be printed as lines for people: nothing else is on standard output.
    pub print: bool,
    /// Whether the run ends by itself.
    pub finite: bool,
    /// Clips that an earlier run has finished.
    pub skipped: usize,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Why a call can't be carried out. All of them are exit status 2.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The configuration.
    #[error("{0}")]
    Config(#[from] Problems),
    /// `--input`.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Inputs(Vec<InputProblem>),
    /// `--output`.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// `--resume`.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// Options that don't go together.
    #[error("{0}")]
    Call(String),
}

/// Puts a run together.
///
/// # Errors
/// What is wrong with the call; nothing was changed then, except that the output may have been opened.
pub fn prepare(args: &RunArgs, context: &Context<'_>) -> Result<Launch, LaunchError> {
    let overrides = Overrides { set: &args.set, realtime: args.realtime };
    let mut plan = config::load(&args.config, overrides, context)?;
    let inputs = inputs::expand(&args.input).map_err(LaunchError::Inputs)?;
    let mut notes = inputs.notes;
    let mut clips = inputs.clips;
    let target = args.output.as_deref().map(Target::from);
    let resume = match &args.resume {
        None => None,
        Some(state) => Some(open_resume(state, args, target.as_ref())?),
    };
    let skipped = resume.as_ref().map_or(0, |resume| {
        let all = clips.len();
        clips = resume.remaining(std::mem::take(&mut clips));
        all - clips.len()
    });
    if args.input.is_empty() {
        clips = plan.streams.iter().map(clip_of).collect();
    } else {
        plan.streams = config::stream_plans(&clips, &plan.graph, args.realtime)?;
    }
    if plan.streams.iter().filter(|s| s.source.uri == "-").count() > 1 {
        return Err(LaunchError::Call("standard input (`-`) is named twice".into()));
    }
    listen(&mut plan, args)?;
    if plan.streams.is_empty() && skipped == 0 {
        let message = "nothing to do: no `--input`, and no streams in the configuration";
        return Err(LaunchError::Call(message.into()));
    }
    if skipped > 0 {
        notes.push(format!("{skipped} clips are finished already, {} to do", clips.len()));
    }
    let output = match (target, resume) {
        (Some(target), resume) => Some(Output::open(&target, resume)?),
        (None, Some(resume)) => Some(Output::only_recording(resume)?),
        (None, None) => None,
    };
    Ok(Launch {
        print: args.output.is_none(),
        finite: plan.streams.iter().all(|s| !s.source.is_live()),
        plan,
        clips,
        output,
        skipped,
        notes,
    })
}

fn open_resume(
    state: &Path,
    args: &RunArgs,
    target: Option<&Target>,
) -> Result<Resume, LaunchError> {
    let refuse = |message: &str| Err(LaunchError::Call(message.into()));
    if args.input.is_empty() {
        return refuse("--resume goes with --input: it records finished clips");
    }
    if args.input.iter().any(|input| input == "-") {
        return refuse("--resume can't go with standard input (`-`), which can't be read again");
    }
    match target {
        Some(Target::Stdout) => {
            refuse("--resume goes with --output FILE: standard output can't be taken back")
        }
        Some(Target::File(output)) => Ok(Resume::open(state, Some(output))?),
        None => Ok(Resume::open(state, None)?),
    }
}

fn listen(plan: &mut Plan, args: &RunArgs) -> Result<(), LaunchError> {
    let Some(address) = &args.listen else { return Ok(()) };
    let (token, language) = match plan.server.take() {
        Some(server) => (server.token, server.language),
        None => (None, true),
    };
    let listen = config::listen(address, token.is_some())
        .map_err(|message| LaunchError::Call(format!("--listen: {message}")))?;
    plan.server = Some(ServerPlan { listen, token, language });
    Ok(())
}

fn clip_of(stream: &StreamPlan) -> Clip {
    Clip {
        id: stream.id.to_string(),
        id_given: true,
        uri: stream.source.uri.clone(),
        title: stream.title.clone(),
        description: stream.description.clone(),
        language: stream.language.clone(),
        priority: Some(stream.priority),
    }
}
