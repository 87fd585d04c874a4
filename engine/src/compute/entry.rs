//! A registered model: its instances, and one batch run on one of them.
//!
//! Types are erased here and nowhere else; [`ModelHandle`](super::ModelHandle) puts them back.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use models::{Interrupt, Model, ModelError};

use super::stop::Stop;

/// Inputs or outputs of one batch.
pub(super) type Members = Vec<Box<dyn Any + Send>>;

/// How a batch's run went.
pub(super) enum Ran {
    /// Answered or failed; whether it was an instance's first run, or had to load one.
    Whole(Result<Members, ModelError>, bool),
    /// Ended half-way, as asked: here are its inputs again.
    Stopped(Members),
}

trait Runner: Send {
    /// The outputs, or why there are none, with the inputs where the run ended half-way.
    fn run(&mut self, inputs: Members) -> Result<Members, (ModelError, Members)>;

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>>;
}

struct Typed<M: Model> {
    name: Arc<str>,
    model: M,
}

impl<M: Model> Runner for Typed<M> {
    fn run(&mut self, inputs: Members) -> Result<Members, (ModelError, Members)> {
        let answer = |found: usize, of: &str, expected: usize| ModelError::Answer {
            name: self.name.to_string(),
            found: format!("{found} {of}"),
            expected: format!("{expected} {of}"),
        };
        let expected = inputs.len();
        let typed = inputs.into_iter().filter_map(|i| i.downcast::<M::Input>().ok());
        let batch: Vec<M::Input> = typed.map(|i| *i).collect();
        if batch.len() != expected {
            let error = answer(batch.len(), "inputs of the model's type", expected);
            return Err((error, Members::new()));
        }
        match self.model.run(&batch) {
            Ok(outputs) if outputs.len() == expected => Ok(boxed(outputs)),
            Ok(outputs) => Err((answer(outputs.len(), "outputs", expected), Members::new())),
            Err(error @ ModelError::Interrupted { .. }) => Err((error, boxed(batch))),
            Err(error) => Err((error, Members::new())),
        }
    }

    fn interrupt(&self) -> Option<Arc<dyn Interrupt>> {
        self.model.interrupt()
    }
}

fn boxed<T: Send + 'static>(members: Vec<T>) -> Members {
    members.into_iter().map(|member| Box::new(member) as Box<dyn Any + Send>).collect()
}

struct Instance {
    runner: Box<dyn Runner>,
    has_run: bool,
}

type Make = Box<dyn Fn() -> Result<Box<dyn Runner>, ModelError> + Send + Sync>;

/// At most one instance per lane, since a lane runs one batch at a time.
pub(super) struct Entry {
    name: Arc<str>,
    make: Make,
    idle: Mutex<Vec<Instance>>,
}

impl Entry {
    /// Loads the first instance; returns the model's largest batch too.
    pub(super) fn load<M: Model>(
        name: Arc<str>,
        make: impl Fn() -> Result<M, ModelError> + Send + Sync + 'static,
    ) -> Result<(Self, usize), ModelError> {
        let guarded = {
            let name = name.clone();
            move || {
                catch_unwind(AssertUnwindSafe(&make)).unwrap_or_else(|panic| {
                    Err(ModelError::Load { name: name.to_string(), detail: panicked(&*panic) })
                })
            }
        };
        let model = guarded()?;
        let batch_max = model.batch_max().max(1);
        let typed = move |name: &Arc<str>, model| {
            Box::new(Typed::<M> { name: name.clone(), model }) as Box<dyn Runner>
        };
        let first = Instance { runner: typed(&name, model), has_run: false };
        let make: Make = {
            let name = name.clone();
            Box::new(move || guarded().map(|model| typed(&name, model)))
        };
        Ok((Entry { name, make, idle: Mutex::new(vec![first]) }, batch_max))
    }

    /// Whether its runs can be ended half-way.
    pub(super) fn is_interruptible(&self) -> bool {
        self.idle().first().is_some_and(|instance| instance.runner.interrupt().is_some())
    }

    /// Loads instances until `count` are idle.
    pub(super) fn prepare(&self, count: usize) -> Result<(), ModelError> {
        while self.idle().len() < count {
            let runner = (self.make)()?;
            self.idle().push(Instance { runner, has_run: false });
        }
        Ok(())
    }

    /// Answers a batch, unless `stop` is asked before it is through. An instance that panicked is thrown away;
    /// the next batch loads another.
    pub(super) fn run(&self, inputs: Members, stop: &Stop) -> Ran {
        let idle = self.idle().pop();
        let instance = match idle {
            Some(instance) => Ok(instance),
            None => (self.make)().map(|runner| Instance { runner, has_run: false }),
        };
        let mut instance = match instance {
            Ok(instance) => instance,
            Err(error) => return Ran::Whole(Err(error), true),
        };
        if !stop.begin(instance.runner.interrupt()) {
            self.idle().push(instance);
            return Ran::Stopped(inputs);
        }
        let is_cold = !std::mem::replace(&mut instance.has_run, true);
        let run = catch_unwind(AssertUnwindSafe(|| instance.runner.run(inputs)));
        // Before the instance is anybody else's.
        let is_asked = stop.end();
        match run {
            Ok(result) => {
                self.idle().push(instance);
                match result {
                    Err((ModelError::Interrupted { .. }, inputs)) if is_asked => {
                        Ran::Stopped(inputs)
                    }
                    result => Ran::Whole(result.map_err(|(error, _)| error), is_cold),
                }
            }
            Err(panic) => {
                let name = self.name.to_string();
                let error = ModelError::Run { name, detail: panicked(&*panic) };
                // Its destructor may meet the state that the panic left.
                if catch_unwind(AssertUnwindSafe(|| drop(instance))).is_err() {
                    tracing::warn!(model = %self.name, "an instance panicked again when dropped");
                }
                Ran::Whole(Err(error), true)
            }
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Instance>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a batch whose model was released before it started.
pub(super) fn gone(name: &str) -> ModelError {
    ModelError::Run { name: name.to_owned(), detail: "released before the job started".to_owned() }
}

fn panicked(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("with something that is no text"))
}
