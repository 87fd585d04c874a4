//! Checks a rule against the shape of a result before it ever runs: every variable and field must exist, and
//! nothing may loop without bound. The shape is the published JSON Schema, so the two can't drift apart.

use std::collections::BTreeSet;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue};
use media::result::FusedResult;
use serde_json::{Map, Value};

/// Variables of a rule, all of them fields of a result.
pub(super) const VARIABLES: [&str; 8] =
    ["vision", "audio", "text", "fusion", "window", "stream", "status", "missing"];
/// Loops inside loops: two are a comparison of all pairs, three are a mistake.
const LOOPS_MAX: usize = 2;
/// Names of types, which an expression may compare `type(x)` with.
const TYPES: [&str; 9] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type"];

/// Why a rule is refused.
#[derive(Debug)]
pub(super) struct Mistake {
    /// Node of the expression.
    pub(super) node: u64,
    /// What is wrong and what exists.
    pub(super) message: String,
}

/// What a rule looks at.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Mentions {
    /// Of [`VARIABLES`].
    pub(super) variables: BTreeSet<&'static str>,
    /// Whether it asks for `vision.safety`.
    pub(super) safety: bool,
    /// Functions it calls, with the node of the call; operators left out.
    pub(super) functions: Vec<(u64, String)>,
}

/// JSON Schema of a result.
#[derive(Debug)]
pub(super) struct Shape(Value);

type Node<'s> = &'s Value;

impl Shape {
    pub(super) fn of_results() -> Self {
        Shape(schemars::schema_for!(FusedResult).to_value())
    }

    /// Checks an expression.
    pub(super) fn check(&self, expression: &IdedExpr) -> Result<Mentions, Mistake> {
        let mut checker =
            Checker { shape: self, scope: Vec::new(), loops: 0, mentions: Mentions::default() };
        checker.infer(expression)?;
        Ok(checker.mentions)
    }

    /// A value of the variable in which everything optional is there.
    pub(super) fn sample(&self, variable: &str) -> Value {
        self.variable(variable).map_or(Value::Null, |node| self.sample_of(node, 0))
    }

    fn variable(&self, name: &str) -> Option<Node<'_>> {
        self.0.get("properties")?.get(name).map(|node| self.resolve(node))
    }

    /// Follows references, and takes the variant that is there over null.
    fn resolve<'s>(&'s self, mut node: Node<'s>) -> Node<'s> {
        // Schemas of plain structs nest a few levels; the bound only guards against a cycle.
        for _ in 0..16 {
            if let Some(path) = node.get("$ref").and_then(Value::as_str) {
                match self.0.pointer(path.trim_start_matches('#')) {
                    Some(target) => node = target,
                    None => return node,
                }
            } else if let Some(variants) = node.get("anyOf").and_then(Value::as_array) {
                let present = |v: &&Value| v.get("type").and_then(Value::as_str) != Some("null");
                match variants.iter().find(present) {
                    Some(variant) => node = variant,
                    None => return node,
                }
            } else {
                return node;
            }
        }
        node
    }

    fn items<'s>(&'s self, node: Node<'s>) -> Option<Node<'s>> {
        let tuple = node.get("prefixItems").and_then(|items| items.get(0));
        tuple.or(node.get("items")).map(|item| self.resolve(item))
    }

    /// None: any name goes. An error holds the names that exist.
    fn field<'s>(&'s self, node: Node<'s>, name: &str) -> Result<Option<Node<'s>>, String> {
        if let Some(fields) = node.get("properties").and_then(Value::as_object) {
            return match fields.get(name) {
                Some(field) => Ok(Some(self.resolve(field))),
                None => Err(format!("known: {}", names(fields))),
            };
        }
        if let Some(values) = node.get("additionalProperties").filter(|v| v.is_object()) {
            return Ok(Some(self.resolve(values)));
        }
        match kind(node) {
            Some("object") | None => Ok(None),
            Some(kind) => Err(format!("it is of type {kind}")),
        }
    }

    fn sample_of(&self, node: Node<'_>, depth: usize) -> Value {
        let node = self.resolve(node);
        if depth > 16 {
            return Value::Null;
        }
        if let Some(words) = node.get("enum").and_then(Value::as_array) {
            return words.first().cloned().unwrap_or_default();
        }
        if let Some(first) = node.get("oneOf").and_then(|variants| variants.get(0)) {
            return first.get("const").cloned().unwrap_or_else(|| self.sample_of(first, depth + 1));
        }
        if let Some(word) = node.get("const") {
            return word.clone();
        }
        if let Some(fields) = node.get("properties").and_then(Value::as_object) {
            return fields
                .iter()
                .map(|(name, field)| (name.clone(), self.sample_of(field, depth + 1)))
                .collect::<Map<_, _>>()
                .into();
        }
        match kind(node) {
            Some("object") => Value::Object(Map::new()),
            Some("array") => match node.get("prefixItems").and_then(Value::as_array) {
                Some(items) => items.iter().map(|item| self.sample_of(item, depth + 1)).collect(),
                None => self
                    .items(node)
                    .map(|item| self.sample_of(item, depth + 1))
                    .into_iter()
                    .collect(),
            },
            Some("string") => "a".into(),
            Some("integer") => 1.into(),
            Some("number") => 0.5.into(),
            Some("boolean") => true.into(),
            _ => Value::Null,
        }
    }
}

struct Checker<'s, 'e> {
    shape: &'s Shape,
    scope: Vec<(&'e str, Option<Node<'s>>)>,
    loops: usize,
    mentions: Mentions,
}

impl<'s, 'e> Checker<'s, 'e> {
    /// Shape of the expression's value, as far as it is known.
    fn infer(&mut self, expr: &'e IdedExpr) -> Result<Option<Node<'s>>, Mistake> {
        match &expr.expr {
            Expr::Ident(name) => self.ident(expr.id, name),
            Expr::Select(select) => {
                let of = self.infer(&select.operand)?;
                if select.field == "safety"
                    && matches!(&select.operand.expr, Expr::Ident(name) if name == "vision")
                {
                    self.mentions.safety = true;
                }
                self.select(expr.id, of, &select.operand, &select.field)
            }
            Expr::Call(call) => self.call(expr.id, call),
            Expr::Comprehension(comprehension) => self.comprehension(expr.id, comprehension),
            Expr::List(list) => self.each(&list.elements),
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.infer(&entry.key)?;
                        self.infer(&entry.value)?;
                    }
                }
                Ok(None)
            }
            Expr::Struct(_) => Err(Mistake {
                node: expr.id,
                message: "rules build no messages: compare fields instead".into(),
            }),
            Expr::Literal(_) | Expr::Unspecified => Ok(None),
        }
    }

    fn each(&mut self, exprs: &'e [IdedExpr]) -> Result<Option<Node<'s>>, Mistake> {
        for expr in exprs {
            self.infer(expr)?;
        }
        Ok(None)
    }

    fn ident(&mut self, node: u64, name: &str) -> Result<Option<Node<'s>>, Mistake> {
        if let Some((_, shape)) = self.scope.iter().rev().find(|(have, _)| *have == name) {
            return Ok(*shape);
        }
        if let Some(variable) = VARIABLES.into_iter().find(|v| *v == name) {
            self.mentions.variables.insert(variable);
            return Ok(self.shape.variable(variable));
        }
        if TYPES.contains(&name) {
            return Ok(None);
        }
        let message = format!("`{name}` is no variable (known: {})", VARIABLES.join(", "));
        Err(Mistake { node, message })
    }

    fn select(
        &self,
        node: u64,
        of: Option<Node<'s>>,
        operand: &IdedExpr,
        field: &str,
    ) -> Result<Option<Node<'s>>, Mistake> {
        let Some(of) = of else { return Ok(None) };
        self.shape.field(of, field).map_err(|known| {
            let owner = path(operand).map_or_else(|| "it".to_owned(), |path| format!("`{path}`"));
            Mistake { node, message: format!("{owner} has no field `{field}` ({known})") }
        })
    }

    fn call(&mut self, node: u64, call: &'e CallExpr) -> Result<Option<Node<'s>>, Mistake> {
        if let Some(target) = &call.target {
            self.infer(target)?;
        }
        if call.func_name.starts_with(char::is_alphabetic) {
            self.mentions.functions.push((node, call.func_name.clone()));
        }
        if call.func_name != cel::common::ast::operators::INDEX {
            return self.each(&call.args);
        }
        let [of, key] = &call.args[..] else { return self.each(&call.args) };
        let shape = self.infer(of)?;
        self.infer(key)?;
        match &key.expr {
            Expr::Literal(LiteralValue::String(name)) => self.select(node, shape, of, name.inner()),
            _ => Ok(shape.and_then(|shape| self.shape.items(shape))),
        }
    }

    fn comprehension(
        &mut self,
        node: u64,
        c: &'e ComprehensionExpr,
    ) -> Result<Option<Node<'s>>, Mistake> {
        let range = self.infer(&c.iter_range)?;
        self.infer(&c.accu_init)?;
        self.loops += 1;
        if self.loops > LOOPS_MAX {
            let message = format!("loops are nested more than {LOOPS_MAX} deep");
            return Err(Mistake { node, message });
        }
        let item = range.and_then(|range| self.shape.items(range));
        let outer = self.scope.len();
        self.scope.push((&c.accu_var, None));
        self.scope.push((&c.iter_var, item));
        self.scope.extend(c.iter_var2.iter().map(|name| (name.as_str(), None)));
        for part in [&c.loop_cond, &c.loop_step, &c.result] {
            self.infer(part)?;
        }
        self.scope.truncate(outer);
        self.loops -= 1;
        Ok(None)
    }
}

/// `vision.safety` as written, when it is a plain path.
fn path(expr: &IdedExpr) -> Option<String> {
    match &expr.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) => Some(format!("{}.{}", path(&select.operand)?, select.field)),
        _ => None,
    }
}

/// `type` may be a list that allows null.
fn kind(node: Node<'_>) -> Option<&str> {
    match node.get("type")? {
        Value::String(kind) => Some(kind),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        _ => None,
    }
}

fn names(fields: &Map<String, Value>) -> String {
    fields.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}
