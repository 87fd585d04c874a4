//! What is known of every stream, for `/v1/streams`, the ledger and the summary. Written by actors, read by
//! anyone; no decision is taken from it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use media::result::StreamState;
use media::{StageId, StreamId, TrackCounts};
use serde::Serialize;

use crate::fusion::{ObservationCounts, WindowCounts};
use crate::plan::StreamPlan;
use crate::port::{Port, PortCounts};

/// One stream as it is now.
#[derive(Clone, Debug, Serialize)]
pub struct StreamStatus {
    /// Its name.
    pub id: StreamId,
    /// Password and query masked.
    pub uri: String,
    /// Given with the source.
    pub title: Option<String>,
    /// Whether deadlines bind.
    pub paced: bool,
    /// What it is doing.
    pub state: StreamState,
    /// Why, for people.
    pub reason: Option<String>,
    /// Tracks that are read.
    pub tracks: Vec<String>,
    /// Repairs and oddities, each said once.
    pub notes: Vec<String>,
    /// Pictures.
    pub video: TrackCounts,
    /// Audio frames.
    pub audio: TrackCounts,
    /// Index of the window that will open next.
    pub window_next: u64,
    /// Windows of this stream.
    pub windows: WindowCounts,
    /// Observations that reached fusion.
    pub observations: ObservationCounts,
    /// Corrections sent.
    pub revisions: u64,
    /// Every edge of its graph.
    pub edges: Vec<EdgeStatus>,
}

/// One edge.
#[derive(Clone, Debug, Serialize)]
pub struct EdgeStatus {
    /// `source` or a stage.
    pub from: StageId,
    /// The stage that reads it.
    pub to: StageId,
    /// Its counts.
    #[serde(flatten)]
    pub counts: PortCounts,
}

pub(crate) struct Edge {
    pub(crate) from: StageId,
    pub(crate) to: StageId,
    pub(crate) port: Port,
}

/// The live record of one stream.
pub(crate) struct Record {
    status: Mutex<StreamStatus>,
    edges: Mutex<Vec<Edge>>,
    /// Windows sealed and not yet emitted.
    open: AtomicU64,
}

impl Record {
    fn new(plan: &StreamPlan) -> Self {
        Record {
            status: Mutex::new(StreamStatus {
                id: plan.id.clone(),
                uri: media::mask_uri(&plan.source.uri),
                title: plan.title.clone(),
                paced: plan.paced,
                state: StreamState::Opening,
                reason: None,
                tracks: Vec::new(),
                notes: Vec::new(),
                video: TrackCounts::default(),
                audio: TrackCounts::default(),
                window_next: 0,
                windows: WindowCounts::default(),
                observations: ObservationCounts::default(),
                revisions: 0,
                edges: Vec::new(),
            }),
            edges: Mutex::new(Vec::new()),
            open: AtomicU64::new(0),
        }
    }

    pub(crate) fn set_open(&self, windows: u64) {
        self.open.store(windows, Ordering::Relaxed);
    }

    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn set_edges(&self, edges: Vec<Edge>) {
        *self.edges.lock().unwrap_or_else(PoisonError::into_inner) = edges;
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut StreamStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn status(&self) -> StreamStatus {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        status.edges = self
            .edges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|edge| EdgeStatus {
                from: edge.from.clone(),
                to: edge.to.clone(),
                counts: edge.port.counts(),
            })
            .collect();
        status
    }
}

/// Records of ended streams kept for reading; older ones only live on in the totals.
const ENDED_MAX: usize = 1_000;

/// All streams.
#[derive(Default)]
pub struct Board {
    records: Mutex<BTreeMap<StreamId, Arc<Record>>>,
}

impl Board {
    /// Every stream that is known, by name.
    pub fn streams(&self) -> Vec<StreamStatus> {
        self.lock().values().map(|record| record.status()).collect()
    }

    /// One stream.
    pub fn stream(&self, id: &StreamId) -> Option<StreamStatus> {
        self.lock().get(id).map(|record| record.status())
    }

    pub(crate) fn add(&self, plan: &StreamPlan) -> Arc<Record> {
        let record = Arc::new(Record::new(plan));
        let mut records = self.lock();
        if records.len() >= ENDED_MAX {
            let over = records.len() + 1 - ENDED_MAX;
            let ended: Vec<StreamId> = records
                .iter()
                .filter(|(_, r)| {
                    matches!(r.status().state, StreamState::Ended | StreamState::Failed)
                })
                .map(|(id, _)| id.clone())
                .take(over)
                .collect();
            for id in ended {
                records.remove(&id);
            }
        }
        records.insert(plan.id.clone(), record.clone());
        record
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<StreamId, Arc<Record>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
