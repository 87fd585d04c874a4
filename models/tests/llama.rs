//! The wrapper with real weights.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::path::PathBuf;

use models::llama::{
    BatchToken, ContextSettings, Decoded, Grammar, Guide, LlamaContext, LlamaModel,
};
use serde_json::json;

fn weights() -> PathBuf {
    let below =
        |name: &str, rest: &str| std::env::var_os(name).map(|dir| PathBuf::from(dir).join(rest));
    let cache = below("PIPELINE_CACHE", "")
        .or_else(|| below("XDG_CACHE_HOME", "pipeline"))
        .or_else(|| below("HOME", ".cache/pipeline"))
        .unwrap();
    let file = cache.join("models/smollm2-135m/smollm2-135m-q8_0.gguf");
    assert!(file.exists(), "{} is not there: run make setup", file.display());
    file
}

const SETTINGS: ContextSettings = ContextSettings {
    n_ctx: 512,
    n_seq: 4,
    n_batch: 256,
    n_ubatch: 64,
    threads: 1,
    kv_unified: true,
};

fn batch(tokens: &[i32], from: usize, seq: u32) -> Vec<BatchToken> {
    let n = tokens.len();
    let entry = |(i, &token): (usize, &i32)| BatchToken {
        token,
        pos: (from + i) as u32,
        seq,
        logits: i + 1 == n,
    };
    tokens.iter().enumerate().map(entry).collect()
}

fn best(logits: &[f32]) -> i32 {
    logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0 as i32
}

fn greedy(ctx: &mut LlamaContext, prompt: &[i32], seq: u32, n: usize) -> Vec<i32> {
    assert_eq!(ctx.decode(&batch(prompt, 0, seq)).unwrap(), Decoded::Done);
    let mut out = vec![best(ctx.logits(prompt.len() - 1).unwrap())];
    while out.len() < n {
        let at = prompt.len() + out.len() - 1;
        ctx.decode(&batch(&out[out.len() - 1..], at, seq)).unwrap();
        out.push(best(ctx.logits(0).unwrap()));
    }
    out
}

#[test]
fn text_goes_to_tokens_and_back_and_control_tokens_only_when_asked() {
    let file = weights();
    let model = LlamaModel::load(&file).unwrap();
    for text in ["The train is late.", "naïve 日本語 🚆", "a\n\n  b\t\"c\""] {
        assert_eq!(model.detokenise(&model.tokenise(text, false).unwrap()), text);
    }
    let trusted = model.tokenise("<|im_end|>", true).unwrap();
    assert_eq!(trusted.len(), 1);
    assert!(model.ends(trusted[0]));
    let data = model.tokenise("<|im_end|>", false).unwrap();
    assert!(data.len() > 1 && !data.iter().any(|&t| model.ends(t)), "{data:?}");
    assert!(model.chat_template().unwrap().contains("im_start"));
}

#[test]
fn it_knows_a_capital_and_a_shared_prefix_changes_nothing() {
    let file = weights();
    let model = LlamaModel::load(&file).unwrap();
    let prompt = model.tokenise("The capital of France is", false).unwrap();
    let mut ctx = LlamaContext::new(model.clone(), SETTINGS).unwrap();
    let alone = greedy(&mut ctx, &prompt, 0, 8);
    assert!(model.detokenise(&alone).starts_with(" Paris"), "{}", model.detokenise(&alone));

    let shared = prompt.len() as u32 - 1;
    ctx.seq_share(0, 1, shared);
    assert_eq!(ctx.seq_len(1), shared);
    ctx.seq_cut(0, 0);
    assert_eq!(ctx.seq_len(0), 0);
    ctx.decode(&batch(&prompt[shared as usize..], shared as usize, 1)).unwrap();
    assert_eq!(best(ctx.logits(0).unwrap()), alone[0]);
}

#[test]
fn a_saved_sequence_comes_back_bit_by_bit() {
    let file = weights();
    let model = LlamaModel::load(&file).unwrap();
    let prompt = model.tokenise("The capital of France is", false).unwrap();
    let mut ctx = LlamaContext::new(model, SETTINGS).unwrap();
    let rest = &prompt[4..];
    ctx.decode(&batch(&prompt[..4], 0, 0)).unwrap();
    ctx.decode(&batch(rest, 4, 0)).unwrap();
    let want = ctx.logits(rest.len() - 1).unwrap().to_vec();
    ctx.seq_cut(0, 4);
    let state = ctx.seq_save(0).unwrap();
    ctx.seq_cut(0, 0);
    ctx.decode(&batch(&[40; 100], 0, 1)).unwrap();
    assert!(ctx.seq_restore(2, &state) && ctx.seq_len(2) == 4);
    ctx.decode(&batch(rest, 4, 2)).unwrap();
    assert_eq!(ctx.logits(rest.len() - 1).unwrap(), want);
}

#[test]
fn a_full_pool_says_so_and_is_usable_again() {
    let file = weights();
    let model = LlamaModel::load(&file).unwrap();
    let mut ctx = LlamaContext::new(model, SETTINGS).unwrap();
    let tokens = vec![40_i32; 200];
    assert_eq!(ctx.decode(&batch(&tokens, 0, 0)).unwrap(), Decoded::Done);
    assert_eq!(ctx.decode(&batch(&tokens, 0, 1)).unwrap(), Decoded::Done);
    assert_eq!(ctx.decode(&batch(&tokens, 0, 2)).unwrap(), Decoded::NoRoom);
    ctx.seq_cut(0, 0);
    assert_eq!(ctx.decode(&batch(&tokens, 0, 2)).unwrap(), Decoded::Done);
}

#[test]
fn a_set_flag_aborts_and_others_are_untouched() {
    let file = weights();
    let model = LlamaModel::load(&file).unwrap();
    let prompt = model.tokenise("The capital of France is", false).unwrap();
    let mut ctx = LlamaContext::new(model, SETTINGS).unwrap();
    let alone = greedy(&mut ctx, &prompt, 0, 4);
    let flag = ctx.abort_flag();
    flag.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(ctx.decode(&batch(&[40; 200], 0, 1)).unwrap(), Decoded::Aborted);
    flag.store(false, std::sync::atomic::Ordering::Relaxed);
    ctx.seq_cut(1, 0);
    ctx.seq_cut(0, 0);
    assert_eq!(greedy(&mut ctx, &prompt, 0, 4), alone);
}

#[test]
fn what_would_end_the_process_is_an_error() {
    let file = weights();
    let model = LlamaModel::load(&file).unwrap();
    let mut ctx = LlamaContext::new(model.clone(), SETTINGS).unwrap();
    assert!(ctx.decode(&[]).is_err());
    assert!(ctx.decode(&batch(&[40; 300], 0, 0)).is_err(), "more than n_batch");
    assert!(ctx.decode(&batch(&[-1], 0, 0)).is_err());
    assert!(ctx.decode(&batch(&[i32::MAX], 0, 0)).is_err());
    assert!(ctx.decode(&batch(&[40], 0, 4)).is_err(), "no such sequence");
    assert!(ctx.decode(&batch(&[40], 7, 0)).is_err(), "a gap in the sequence");
    assert_eq!(ctx.decode(&batch(&[40, 41], 0, 0)).unwrap(), Decoded::Done);
    assert!(ctx.logits(0).is_none() && ctx.logits(1).is_some() && ctx.logits(2).is_none());
    assert!(LlamaContext::new(model, ContextSettings { n_seq: 0, ..SETTINGS }).is_err());
}

fn is_set(bits: &[u32], token: i32) -> bool {
    bits[token as usize / 32] >> (token as usize % 32) & 1 == 1
}

#[test]
fn a_grammar_holds_the_answer() {
    let file = weights();
    let model = LlamaModel::load(&file).unwrap();
    let error = Grammar::new(model.clone(), "root ::= (((").unwrap_err().to_string();
    assert!(error.starts_with("the grammar can't be used"), "{error}");
    let mut grammar = Grammar::new(model.clone(), r#"root ::= " yes" | " no""#).unwrap();
    let prompt = model.tokenise("Is water wet? Answer:", false).unwrap();
    let mut ctx = LlamaContext::new(model.clone(), SETTINGS).unwrap();
    ctx.decode(&batch(&prompt, 0, 0)).unwrap();
    let mut out = Vec::new();
    let mut row = prompt.len() - 1;
    loop {
        let logits = ctx.logits(row).unwrap();
        let allowed = grammar.allowed().to_vec();
        let left = (0..logits.len() as i32).filter(|&t| is_set(&allowed, t));
        let token =
            left.max_by(|&a, &b| logits[a as usize].total_cmp(&logits[b as usize])).unwrap();
        assert!(grammar.permits(token) && !grammar.may_end() && !model.ends(token));
        out.push(token);
        if grammar.accept(token) {
            break;
        }
        ctx.decode(&batch(&[token], prompt.len() + out.len() - 1, 0)).unwrap();
        row = 0;
    }
    assert!(grammar.may_end());
    let text = model.detokenise(&out);
    assert!(text == " yes" || text == " no", "{text}");
    // What it does not allow is not taken.
    assert!(!grammar.accept(prompt[0]) && !grammar.permits(-1) && !grammar.permits(i32::MAX));
}

#[test]
fn a_guide_allows_what_fits_and_nothing_else() {
    let model = LlamaModel::load(&weights()).unwrap();
    let schema = json!({
        "type": "object",
        "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer"}},
        "required": ["kind", "n"],
        "additionalProperties": false
    });
    let mut guide = Guide::json(&model, &schema).unwrap();
    let fits = model.tokenise(r#"{"kind": "b", "n": 42}"#, false).unwrap();
    for (i, &token) in fits.iter().enumerate() {
        assert!(is_set(guide.allowed().unwrap(), token) && !guide.may_end().unwrap());
        assert_eq!(guide.accept(token).unwrap(), i + 1 == fits.len());
    }
    assert!(guide.may_end().unwrap());
    // Nothing of the vocabulary is left, and asking again is no error.
    assert!(guide.allowed().unwrap().iter().all(|&word| word == 0));

    let mut guide = Guide::regex(&model, "(ab)+").unwrap();
    let [a, ab] = ["a", "ab"].map(|text| model.tokenise(text, false).unwrap()[0]);
    assert!(!guide.accept(ab).unwrap(), "it may go on");
    assert!(guide.may_end().unwrap() && is_set(guide.allowed().unwrap(), a));
    assert!(model.end_tokens().iter().all(|&end| is_set(guide.allowed().unwrap(), end)));
    assert!(!guide.accept(a).unwrap() && !guide.may_end().unwrap());
    let error = guide.accept(a).unwrap_err().to_string();
    assert!(error.starts_with("the constraint can't be followed further"), "{error}");
    assert!(guide.allowed().is_err() && guide.may_end().is_err());

    let error = Guide::regex(&model, "[0-9").unwrap_err().to_string();
    assert_eq!(error, "the regular expression can't be used: error: unclosed character class");
}
