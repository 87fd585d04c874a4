//! Turns a conversation into a prompt, by the Jinja template that came with the model.
//!
//! Its neighbours are `chat`, where the conversation is read, and `strftime`. The one rule: contents of messages
//! never pass through the template. It is given marks in their place, and where a mark comes out the content is put
//! in as [`Part::Data`], so that `<|im_end|>` inside a message is nothing but characters.

use std::io;

use engine::language::{ModelInfo, Part, Prompt};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, Serde};
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::json;

use super::chat::{Chat, Message};
use super::strftime::strftime;

/// Name of the only template.
const NAME: &str = "chat";
/// Work of one rendering: about this many instructions, or 64 times as many bytes.
const FUEL: u64 = 400_000;
const RECURSION_MAX: usize = 100;
/// Longest source that is compiled, and longest text that comes out of it.
const BYTES_MAX: usize = 2 << 20;

/// A mark is `OPEN` number `CLOSE` between two `EDGE`s. Both ends are of the private use area, which no template
/// speaks of; digits survive a change of case. The edge is a blank: where it is gone, the template trimmed.
const OPEN: char = '\u{f8d0}';
const CLOSE: char = '\u{f8d1}';
const EDGE: char = '\u{2003}';

/// How contents are given to a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    Text,
    Parts,
}

/// A model's way to put messages together.
#[derive(Debug)]
pub(super) struct ChatTemplate {
    jinja: Option<(Environment<'static>, Contents)>,
    start_text: String,
    end_text: String,
    /// Why there is no template, if there should be one.
    fault: Option<String>,
}

impl ChatTemplate {
    /// Compiles the model's template and tries it. Without one, and with one that fails, messages become lines of
    /// `role: content`.
    pub(super) fn new(info: &ModelInfo) -> Self {
        let mut template = ChatTemplate {
            jinja: None,
            start_text: info.start_text.clone(),
            end_text: info.end_text.clone(),
            fault: None,
        };
        let Some(source) = &info.chat_template else {
            template.fault = Some("the model has no chat template".into());
            return template;
        };
        match environment(source) {
            Ok(environment) => {
                template.jinja = Some((environment, Contents::Text));
                if let Err(error) = template.try_out() {
                    template.jinja = None;
                    template.fault = Some(error);
                }
            }
            Err(error) => template.fault = Some(error.to_string()),
        }
        template
    }

    /// Why messages become plain lines; none when they do not.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// The prompt; all but the last message may come again. `now_unix_s` is the date for templates that name it.
    ///
    /// # Errors
    /// What the template says against this conversation.
    pub(super) fn prompt(&self, chat: &Chat, now_unix_s: i64) -> Result<Prompt, String> {
        let mut parts = match &self.jinja {
            Some((environment, contents)) => {
                let text = self.render(environment, *contents, chat, now_unix_s)?;
                let marked = marked(&chat.messages, *contents);
                let parts = split(&text, &marked.1)?;
                Ok::<_, String>(parts)
            }
            None => Ok(plain(chat)),
        }?;
        // The engine begins every prompt with it.
        if let Some(Part::Template(first)) = parts.first_mut()
            && let Some(rest) = first.strip_prefix(self.start_text.as_str())
        {
            *first = rest.to_owned();
        }
        parts.retain(|part| !matches!(part, Part::Template(t) | Part::Data(t) if t.is_empty()));
        let last = parts.iter().rposition(|part| matches!(part, Part::Data(_)));
        Ok(Prompt { reuse: last.unwrap_or(0), parts })
    }

    /// Finds out how the template wants contents, and whether it works at all.
    fn try_out(&mut self) -> Result<(), String> {
        let content = vec!["probe".to_owned()];
        let chat = Chat {
            messages: vec![Message { role: "user".into(), content }],
            add_generation_prompt: true,
            ..Chat::default()
        };
        let mut fault = String::new();
        for way in [Contents::Text, Contents::Parts] {
            if let Some((_, contents)) = &mut self.jinja {
                *contents = way;
            }
            // A list that is printed instead of walked through shows its keys.
            let shows_key = |text: &str| text.contains("'type'") || text.contains("\"type\"");
            let printed = |part: &Part| matches!(part, Part::Template(t) if shows_key(t));
            match self.prompt(&chat, 0) {
                Ok(prompt) if prompt.parts.iter().any(printed) => {
                    fault = "the chat template prints the content as a list".into();
                }
                Ok(prompt) if prompt.parts.contains(&Part::Data("probe".into())) => return Ok(()),
                Ok(_) => fault = "the chat template leaves the content out".into(),
                Err(error) => fault = error,
            }
        }
        Err(fault)
    }

    fn render(
        &self,
        environment: &Environment<'_>,
        contents: Contents,
        chat: &Chat,
        now_unix_s: i64,
    ) -> Result<String, String> {
        let (messages, _) = marked(&chat.messages, contents);
        // What the program says goes before what a client wishes.
        let mut context = chat.switches.clone();
        context.insert("messages".into(), messages);
        context.insert("add_generation_prompt".into(), chat.add_generation_prompt.into());
        context.insert("bos_token".into(), self.start_text.as_str().into());
        context.insert("eos_token".into(), self.end_text.as_str().into());
        context.insert("tools".into(), serde_json::Value::Null);
        context.insert(NOW.into(), now_unix_s.into());
        let mut out = Bounded(Vec::new());
        let template = environment.get_template(NAME).map_err(said)?;
        template.render_captured_to(Serde(context), &mut out).map_err(said)?;
        String::from_utf8(out.0).map_err(|e| e.to_string())
    }
}

/// Where [`strftime_now`] finds the time.
const NOW: &str = "__now_unix_s";

fn environment(source: &str) -> Result<Environment<'static>, Error> {
    if source.len() > BYTES_MAX {
        let detail =
            format!("chat template of {} bytes, expected at most {BYTES_MAX}", source.len());
        return Err(Error::new(ErrorKind::InvalidOperation, detail));
    }
    let mut environment = Environment::new();
    // As the templates' authors try them out.
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION_MAX);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_template_owned(NAME, without_training_marks(source))?;
    Ok(environment)
}

fn raise_exception(message: String, _more: Rest<Value>) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime_now(state: &minijinja::State<'_, '_>, format: String) -> String {
    let now = state.lookup(NOW).and_then(|now| now.as_i64()).unwrap_or(0);
    strftime(&format, now)
}

/// `{% generation %}` marks what a model is trained on, and prints nothing.
fn without_training_marks(source: &str) -> String {
    let mut text = source.to_owned();
    for word in ["generation", "endgeneration"] {
        for open in ["{%", "{%-"] {
            for close in ["%}", "-%}"] {
                let tag = format!("{open} {word} {close}");
                // Something that prints nothing and trims as much.
                text = text.replace(&tag, &format!("{open} if true {close}{{% endif %}}"));
            }
        }
    }
    text
}

fn said(error: Error) -> String {
    // The first line is the cause; what follows is the template's source.
    error.to_string().lines().next().unwrap_or("it failed").to_owned()
}

/// Messages with marks in place of their contents, and the contents by the marks' numbers.
fn marked(messages: &[Message], contents: Contents) -> (serde_json::Value, Vec<String>) {
    let mut data = Vec::new();
    let mut mark = |text: String| {
        data.push(text);
        format!("{EDGE}{OPEN}{}{CLOSE}{EDGE}", data.len() - 1)
    };
    let message = |message: &Message| {
        let content = match contents {
            // An empty content may be asked for, such as `{% if message.content %}`.
            Contents::Text if message.content.iter().all(String::is_empty) => json!(""),
            Contents::Text => json!(mark(message.content.join("\n"))),
            Contents::Parts => {
                let part = |text: &String| json!({ "type": "text", "text": mark(text.clone()) });
                message.content.iter().map(part).collect()
            }
        };
        json!({ "role": message.role, "content": content })
    };
    let messages: Vec<serde_json::Value> = messages.iter().map(message).collect();
    (messages.into(), data)
}

/// What a template wrote, with the contents in their places.
fn split(text: &str, data: &[String]) -> Result<Vec<Part>, String> {
    let broken = || "the chat template changes the contents of messages".to_owned();
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(OPEN) {
        let (before, mark) = rest.split_at(at);
        let (number, after) = mark[OPEN.len_utf8()..].split_once(CLOSE).ok_or_else(broken)?;
        let content = number.parse().ok().and_then(|n: usize| data.get(n)).ok_or_else(broken)?;
        let mut content = content.as_str();
        let before = before.strip_suffix(EDGE).unwrap_or_else(|| {
            content = content.trim_start();
            before
        });
        rest = after.strip_prefix(EDGE).unwrap_or_else(|| {
            content = content.trim_end();
            after
        });
        if before.contains([CLOSE, EDGE]) {
            return Err(broken());
        }
        parts.push(Part::Template(before.to_owned()));
        parts.push(Part::Data(content.to_owned()));
    }
    if rest.contains([CLOSE, EDGE]) {
        return Err(broken());
    }
    parts.push(Part::Template(rest.to_owned()));
    Ok(parts)
}

/// Without a template: a line for each message.
fn plain(chat: &Chat) -> Vec<Part> {
    let mut parts = Vec::new();
    for message in &chat.messages {
        parts.push(Part::Template(format!("{}: ", message.role)));
        parts.push(Part::Data(message.content.join("\n")));
        parts.push(Part::Template("\n".into()));
    }
    if chat.add_generation_prompt {
        parts.push(Part::Template("assistant:".into()));
    }
    parts
}

/// Takes so much and no more.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > BYTES_MAX {
            return Err(io::Error::other(format!("more than {BYTES_MAX} bytes come out of it")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
