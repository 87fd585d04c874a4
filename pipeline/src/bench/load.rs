//! Completions asked of any server that speaks the OpenAI protocol, and what they took.
//!
//! Its one rule: every server is asked by the same client for the same numbers of tokens.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use media::{Clock, SystemClock};
use serde_json::{Value, json};

use super::stats::Times;

/// Longest wait for an answer to begin, and between two pieces of it.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Common words, of about a token each.
const WORDS: &[&str] = &[
    "the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "with", "as",
    "his", "they", "be", "at", "one", "have", "this", "from", "or", "had", "by", "hot", "but",
    "some", "what", "there", "we", "can", "out", "other", "were", "all", "your", "when", "up",
    "use", "word", "how", "said", "an", "each", "she", "which", "do", "their", "time", "if",
    "will", "way", "about", "many", "then", "them", "would", "write", "like", "so", "these", "her",
    "long", "make", "thing", "see", "him", "two", "has", "look", "more", "day", "could", "go",
    "come", "did", "my", "sound", "no", "most", "number", "who", "over", "know", "water", "than",
    "call", "first", "people", "may", "down", "side", "been", "now", "find",
];

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) prompt: String,
    /// Exactly so many are generated.
    pub(super) answer_tokens: u32,
    pub(super) priority: Option<i32>,
}

/// What one answer took.
#[derive(Clone, Debug, Default)]
pub(super) struct Took {
    pub(super) first_ms: f64,
    pub(super) whole_ms: f64,
    pub(super) prompt_tokens: u64,
    pub(super) answer_tokens: u64,
}

/// What many answers took.
#[derive(Clone, Debug, Default)]
pub(super) struct Total {
    pub(super) whole: Times,
    pub(super) first: Times,
    /// Between two tokens of one answer, on average.
    pub(super) gap: Times,
    pub(super) prompt_tokens: u64,
    pub(super) answer_tokens: u64,
    pub(super) errors: Vec<String>,
    pub(super) seconds: f64,
}

impl Total {
    fn add(&mut self, took: Result<Took, String>) {
        match took {
            Ok(took) => {
                self.whole.add(took.whole_ms);
                self.first.add(took.first_ms);
                let gaps = took.answer_tokens.saturating_sub(1);
                if gaps > 0 {
                    self.gap.add((took.whole_ms - took.first_ms) / gaps as f64);
                }
                self.prompt_tokens += took.prompt_tokens;
                self.answer_tokens += took.answer_tokens;
            }
            Err(error) => self.errors.push(error),
        }
    }

    /// Generated tokens a second, over all answers.
    pub(super) fn answer_tokens_per_s(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.answer_tokens as f64 / self.seconds)
    }

    pub(super) fn requests_per_s(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.whole.count() as f64 / self.seconds)
    }
}

/// A server under load. Cheap to clone.
#[derive(Clone)]
pub(super) struct Target {
    http: reqwest::Client,
    base: String,
    model: String,
    clock: Arc<SystemClock>,
}

impl Target {
    /// The same server, asked for another of its models.
    pub(super) fn with_model(&self, model: &str) -> Self {
        Target { model: model.to_owned(), ..self.clone() }
    }

    /// Waits up to `limit` until `base` answers, and takes the first model that it names.
    pub(super) async fn open(base: &str, limit: Duration) -> Result<Self, String> {
        // A connection each: servers close idle ones when it suits them.
        let http = reqwest::Client::builder().read_timeout(SILENCE_MAX).pool_max_idle_per_host(0);
        let http = http.build();
        let http = http.map_err(|e| e.to_string())?;
        let base = base.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        let clock = Arc::new(SystemClock::new());
        let mut target = Target { http, base, model: String::new(), clock };
        let until = target.clock.now() + limit;
        loop {
            let found = target.first_model().await;
            match found {
                Ok(model) => {
                    target.model = model;
                    return Ok(target);
                }
                Err(error) if target.clock.now() >= until => {
                    return Err(format!("{} does not answer: {error}", target.base));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn first_model(&self) -> Result<String, String> {
        let models = self.get("/v1/models").await?;
        let models: Value = serde_json::from_str(&models).map_err(|e| e.to_string())?;
        // A server that still loads its model may name it before it can answer.
        self.get("/health").await?;
        let first = models.pointer("/data/0/id").and_then(Value::as_str);
        first.map(str::to_owned).ok_or_else(|| format!("/v1/models names no model: {models}"))
    }

    async fn get(&self, path: &str) -> Result<String, String> {
        let answer = self.http.get(format!("{}{path}", self.base)).send().await;
        let answer = answer.and_then(reqwest::Response::error_for_status);
        let text = answer.map_err(|e| e.to_string())?.text().await;
        text.map_err(|e| e.to_string())
    }

    /// Sum of a metric over its labels; none when the server has no such.
    pub(super) async fn metric(&self, name: &str) -> Option<f64> {
        let text = self.get("/metrics").await.ok()?;
        let is_named =
            |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let values = text.lines().filter(is_named);
        values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).reduce(|a, b| a + b)
    }

    /// Words that make prompts of about so many tokens.
    pub(super) async fn words_for(&self, prompt_tokens: u64) -> Result<usize, String> {
        const TRIED: usize = 64;
        let wish = Wish { prompt: text(TRIED, 0), answer_tokens: 1, priority: None };
        let found = self.ask(&wish).await?.prompt_tokens.max(1);
        Ok((TRIED as u64 * prompt_tokens / found).max(1) as usize)
    }

    /// One streamed completion.
    pub(super) async fn ask(&self, wish: &Wish) -> Result<Took, String> {
        let mut body = json!({
            "model": self.model,
            "prompt": wish.prompt,
            "max_tokens": wish.answer_tokens,
            "temperature": 0,
            "ignore_eos": true,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        if let Some(priority) = wish.priority {
            body["priority"] = priority.into();
        }
        let began = self.clock.now();
        let url = format!("{}/v1/completions", self.base);
        let answer = self.http.post(url).json(&body).send().await;
        let answer = answer.map_err(|e| format!("{e:?}"))?;
        if !answer.status().is_success() {
            let status = answer.status();
            return Err(format!("{status}: {}", answer.text().await.unwrap_or_default()));
        }
        let mut took = Took::default();
        let (mut pieces, mut rest) = (answer.bytes_stream(), Vec::new());
        while let Some(piece) = pieces.next().await {
            rest.extend_from_slice(&piece.map_err(|e| e.to_string())?);
            while let Some(end) = rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                self.take(&line, began, &mut took)?;
            }
        }
        if took.answer_tokens == 0 {
            return Err("the answer ended without its usage".into());
        }
        Ok(took)
    }

    /// One line of server-sent events.
    fn take(&self, line: &[u8], began: media::Mono, took: &mut Took) -> Result<(), String> {
        let Some(data) = line.strip_prefix(b"data:") else { return Ok(()) };
        let Ok(event) = serde_json::from_slice::<Value>(data) else { return Ok(()) };
        if let Some(error) = event.get("error") {
            return Err(error.to_string());
        }
        let now_ms = self.clock.now().ms_since(began);
        if event.pointer("/choices/0").is_some() {
            took.whole_ms = now_ms;
            if took.first_ms == 0.0 {
                took.first_ms = now_ms;
            }
        }
        let count = |name: &str| event.pointer(name).and_then(Value::as_u64);
        if let Some(tokens) = count("/usage/completion_tokens") {
            took.answer_tokens = tokens;
            took.prompt_tokens = count("/usage/prompt_tokens").unwrap_or_default();
        }
        Ok(())
    }

    /// All wishes, `concurrency` at a time.
    pub(super) async fn all(&self, wishes: Vec<Wish>, concurrency: usize) -> Total {
        let began = self.clock.now();
        let left = Arc::new(Mutex::new(VecDeque::from(wishes)));
        let askers = (0..concurrency).map(|_| {
            let (target, left) = (self.clone(), left.clone());
            tokio::spawn(async move {
                let mut took = Vec::new();
                loop {
                    let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(wish) = next else { return took };
                    took.push(target.ask(&wish).await);
                }
            })
        });
        let mut total = Total::default();
        for asker in askers.collect::<Vec<_>>() {
            match asker.await {
                Ok(took) => took.into_iter().for_each(|took| total.add(took)),
                Err(error) => total.errors.push(error.to_string()),
            }
        }
        total.seconds = self.clock.now().since(began).as_secs_f64();
        total
    }
}

/// `words` words; another `number` gives another text from the first word on.
pub(super) fn text(words: usize, number: u64) -> String {
    // SplitMix64, so that every run asks the same.
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)) as usize
    };
    let words: Vec<&str> = (0..words).map(|_| WORDS[next() % WORDS.len()]).collect();
    words.join(" ")
}

/// `count` wishes with these lengths in turn.
pub(super) fn wishes(words: &[usize], answers: &[u32], count: usize, from: u64) -> Vec<Wish> {
    let wish = |n: usize| Wish {
        prompt: text(words[n % words.len()], from + n as u64),
        answer_tokens: answers[n % answers.len()],
        priority: None,
    };
    (0..count).map(wish).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_length_and_differ_from_the_start() {
        let texts: Vec<String> = (0..20).map(|n| text(50, n)).collect();
        assert!(texts.iter().all(|t| t.split(' ').count() == 50));
        let starts: std::collections::BTreeSet<String> =
            texts.iter().map(|t| t.split(' ').take(3).collect()).collect();
        assert!(starts.len() >= 19, "{starts:?}");
        assert_eq!(text(50, 3), texts[3]);
    }
}
