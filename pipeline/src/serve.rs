//! `pipeline serve`: a language model for other programs, and nothing else.
//!
//! Its neighbour is `run`, whose parts it uses; what is served is `server::language`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::language::{Health, LanguageBackend};
use models::Catalogue;
use serde_json::json;

use crate::config;
use crate::plan::{BackendPlan, ModelPlan, Secret, ServerPlan};
use crate::run::{self, Front};
use crate::server::Server;
use crate::server::language::{LanguageApi, Served};

/// Environment variable that holds the token which clients must send: a command line is seen by everyone on the
/// machine.
const TOKEN: &str = "PIPELINE_TOKEN";
/// Time that answers may take at the end before they are cut off.
const GRACE: Duration = Duration::from_secs(1);

/// What `pipeline serve` was called with.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// Catalogue name, or path of a GGUF file.
    #[arg(long, value_name = "NAME", default_value = "smollm2-135m")]
    pub model: String,
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
    let backend = backend(&args.model).await?;
    language.open(vec![Served { name: backend.model().to_owned(), backend: backend.clone() }]);
    let address = server.address();
    let ready = async {
        while backend.health() != Health::Ready {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        is_ready.store(true, Ordering::Relaxed);
        tracing::info!("language model `{}` on http://{address}/v1", backend.model());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = ready => {}
        () = run::signal() => {}
    }
    server.shutdown(GRACE).await;
    Ok(())
}

async fn backend(model: &str) -> Result<Arc<dyn LanguageBackend>, String> {
    let catalogue = Arc::new(Catalogue::builtin());
    let weights: BTreeSet<String> =
        (!model.ends_with(".gguf")).then(|| model.to_owned()).into_iter().collect();
    let known = catalogue.clone();
    // Files are looked at.
    tokio::task::spawn_blocking(move || run::all_there(&known, &weights))
        .await
        .map_err(|e| e.to_string())??;
    let plan = ModelPlan { backends: vec![BackendPlan::Embedded { model: model.to_owned() }] };
    run::backend(&catalogue, &plan)
}
