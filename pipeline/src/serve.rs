//! `pipeline serve`: a language model for other programs, and nothing else.
//!
//! Its neighbour is `run`, whose parts it uses; what is served is `server::language`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::language::{
    CacheLimits, CachedBackend, ChildArgs, EmbeddedBackend, Health, LanguageBackend, ModelPool,
    PoolModel,
};
use media::SystemClock;
use models::Catalogue;
use serde_json::json;

use crate::config;
use crate::plan::{Secret, ServerPlan};
use crate::run::{self, Front};
use crate::server::Server;
use crate::server::language::{LanguageApi, Served};

/// Environment variable that holds the token which clients must send: a command line is seen by everyone on the
/// machine.
const TOKEN: &str = "PIPELINE_TOKEN";
/// What a model takes besides its weights: cells and buffers, roughly.
const BUFFERS_MB: u64 = 256;
/// Time that answers may take at the end before they are cut off.
const GRACE: Duration = Duration::from_secs(1);

/// What `pipeline serve` was called with.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Catalogue name, or path of a GGUF file; up to 32 of them, each called by its name.
    #[arg(long = "model", value_name = "NAME", default_value = "smollm2-135m")]
    pub models: Vec<String>,
    /// Memory that models may take together; the least recently used makes room.
    #[arg(long, value_name = "MB", default_value_t = 4096)]
    pub memory_mb: u64,
    /// Loads a model only when it is asked for, not when it is probably next.
    #[arg(long)]
    pub no_preload: bool,
    /// Threads that compute, for each model.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub threads: u32,
    /// Requests that run at once, for each model.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub slots: u32,
    /// Cells of each model's pool; longest prompt and answer together, unless the model was trained for less.
    #[arg(long, value_name = "TOKENS", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(64..=1_048_576))]
    pub context_tokens: u32,
    /// Time that a step is cut to stay under while prompts are read beside answers. More reads prompts faster and lets
    /// the answers stall longer; requests of a negative priority end a step anyway.
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=60_000))]
    pub quantum_ms: u32,
    /// Cells that are kept of ended requests, for others that begin the same. More of them slow every step.
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    pub kept_tokens: u32,
    /// How long an idle model waits for more requests before it starts with one that is not urgent.
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=50))]
    pub batch_window_ms: u32,
    /// Answers kept for requests that come again; 0: none.
    #[arg(long, value_name = "MB", default_value_t = 16)]
    pub cache_mb: usize,
    /// Address and port; port 0 takes a free one. An address that others can reach needs a token in PIPELINE_TOKEN.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: String,
}

/// Serves until a signal comes.
///
/// # Errors
/// One sentence: what can't be had, and what to do.
pub async fn serve(args: &ServeArgs) -> Result<(), String> {
    let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    let listen =
        config::listen(&args.listen, token.is_some()).map_err(|e| format!("--listen: {e}"))?;
    let plan = ServerPlan { listen, token: token.map(Secret::from), language: true };
    let is_ready = Arc::new(AtomicBool::new(false));
    let language = LanguageApi::default();
    let graph = json!({ "stages": [] });
    let (front, api) = (Front::default(), Some(language.clone()));
    let state = run::server_state(graph, &front, run::recorder()?, is_ready.clone(), api);
    // Before the model, which takes seconds: a port that is taken is told at once.
    let server = Server::start(&plan, state).await.map_err(|e| e.to_string())?;
    let backends = backends(args).await?;
    let first = backends.first().cloned().ok_or("no language model is named")?;
    let served = |backend: Arc<dyn LanguageBackend>| {
        let name = backend.model().to_owned();
        Served { name, backend: remembering(args, backend) }
    };
    language.open(backends.into_iter().map(served).collect());
    let address = server.address();
    let ready = async {
        // The first one is there before anybody asks.
        let loaded = first.open().await;
        while loaded.is_ok() && first.health() != Health::Ready {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        is_ready.store(true, Ordering::Relaxed);
        tracing::info!("language model `{}` on http://{address}/v1", first.model());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = ready => {}
        () = run::signal() => {}
    }
    server.shutdown(GRACE).await;
    Ok(())
}

/// One model stays in memory; several share it.
async fn backends(args: &ServeArgs) -> Result<Vec<Arc<dyn LanguageBackend>>, String> {
    let catalogue = Arc::new(Catalogue::builtin());
    let named: BTreeSet<String> =
        args.models.iter().filter(|model| !model.ends_with(".gguf")).cloned().collect();
    let known = catalogue.clone();
    // Files are looked at.
    tokio::task::spawn_blocking(move || run::all_there(&known, &named))
        .await
        .map_err(|e| e.to_string())??;
    let mut models = Vec::new();
    for model in &args.models {
        let (name, file) = run::weights(&catalogue, model)?;
        if models.iter().any(|m: &PoolModel| m.config.model == name) {
            return Err(format!("--model {name} is named twice"));
        }
        let bytes = std::fs::metadata(&file).map_err(|e| format!("{}: {e}", file.display()))?.len();
        let usual = ChildArgs::new(file);
        let child = ChildArgs {
            threads: args.threads,
            slots: args.slots,
            slots_urgent: args.slots.saturating_sub(1).min(2),
            context_tokens: args.context_tokens,
            quantum_ms: args.quantum_ms,
            quantum_alone_ms: usual.quantum_alone_ms.max(args.quantum_ms),
            cache_tokens: args.kept_tokens,
            batch_window_ms: args.batch_window_ms,
            ..usual
        };
        let mb = (bytes >> 20) + BUFFERS_MB;
        models.push(PoolModel { config: run::embedded(child, name)?, mb });
    }
    if let [model] = models.as_slice() {
        return Ok(vec![Arc::new(EmbeddedBackend::start(model.config.clone()))]);
    }
    let pool = ModelPool::new(models, args.memory_mb, !args.no_preload)?;
    let backend = |backend| Arc::new(backend) as Arc<dyn LanguageBackend>;
    Ok(pool.backends().into_iter().map(backend).collect())
}

fn remembering(args: &ServeArgs, backend: Arc<dyn LanguageBackend>) -> Arc<dyn LanguageBackend> {
    if args.cache_mb == 0 {
        return backend;
    }
    let limits = CacheLimits { bytes_max: args.cache_mb << 20, ..CacheLimits::default() };
    Arc::new(CachedBackend::new(backend, limits, Arc::new(SystemClock::new())))
}
