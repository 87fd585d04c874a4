//! Two backends, of which the light one answers what is simple.
//!
//! Its neighbour is `route`, which says how hard a request is.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use metrics::counter;

use super::backend::{
    BackendError, GenerateRequest, Generation, Health, LanguageBackend, Score, ScoreRequest,
};
use super::before::Before;
use super::route::{of_generate, of_score};

/// A heavy backend with a light one beside it. Cheap to clone.
#[derive(Clone)]
pub struct RoutedBackend {
    heavy: Arc<dyn LanguageBackend>,
    light: Arc<dyn LanguageBackend>,
    threshold: f64,
}

impl RoutedBackend {
    /// Requests of less complexity than `threshold` (0 to 1) go to `light`.
    pub fn new(
        heavy: Arc<dyn LanguageBackend>,
        light: Arc<dyn LanguageBackend>,
        threshold: f64,
    ) -> Self {
        RoutedBackend { heavy, light, threshold }
    }

    /// Who answers a request of this complexity: the light one only while it can take work.
    fn of(&self, complexity: f64) -> &Arc<dyn LanguageBackend> {
        let is_light = complexity < self.threshold && self.light.health() == Health::Ready;
        let route = if is_light { "light" } else { "heavy" };
        counter!(crate::events::ROUTES, "route" => route).increment(1);
        if is_light { &self.light } else { &self.heavy }
    }
}

impl Before for RoutedBackend {
    fn behind(&self) -> &Arc<dyn LanguageBackend> {
        &self.heavy
    }

    fn beside(&self) -> Option<&Arc<dyn LanguageBackend>> {
        Some(&self.light)
    }

    fn answer(&self, request: GenerateRequest) -> BoxFuture<'_, Result<Generation, BackendError>> {
        self.of(of_generate(&request)).generate(request)
    }

    fn weigh(&self, request: ScoreRequest) -> BoxFuture<'_, Result<Vec<Score>, BackendError>> {
        self.of(of_score(&request)).score(request)
    }
}
