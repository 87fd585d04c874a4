//! Whether the numbers of a request are within their bounds, before anything is done for it. Pure, needs no
//! model: the parent asks before it sends, the child before it works.

use super::backend::{BackendError, GenerateRequest, Sampling};

/// Most continuations of a score, and most texts of a choice.
pub(super) const CHOICES_MAX: usize = 256;
/// Most stop texts of a request.
const STOPS_MAX: usize = 16;
/// Most stop tokens of a request.
const STOP_TOKENS_MAX: usize = 64;
/// Most tokens with a bias.
const BIASES_MAX: usize = 1024;
/// Most of the likeliest tokens that are told at each place, as in vLLM.
const LOGPROBS_MAX: u8 = 20;

/// # Errors
/// `BadRequest` that names the field, what was found and what was expected.
pub(super) fn check(request: &GenerateRequest) -> Result<(), BackendError> {
    let GenerateRequest { tokens_max, tokens_min, stop, stop_tokens, sampling, .. } = request;
    if *tokens_max == 0 {
        return bad("tokens_max", tokens_max, "at least 1");
    }
    if tokens_min > tokens_max {
        return bad(
            "tokens_min",
            tokens_min,
            &format!("at most tokens_max, which is {tokens_max}"),
        );
    }
    if stop.len() > STOPS_MAX {
        return bad("number of stop texts", stop.len(), &format!("at most {STOPS_MAX}"));
    }
    if stop_tokens.len() > STOP_TOKENS_MAX {
        let expected = format!("at most {STOP_TOKENS_MAX}");
        return bad("number of stop_tokens", stop_tokens.len(), &expected);
    }
    if let Some(found) = request.logprobs.filter(|&n| n > LOGPROBS_MAX) {
        return bad("logprobs", found, &format!("0 to {LOGPROBS_MAX}"));
    }
    check_sampling(sampling)
}

/// vLLM's bounds.
fn check_sampling(sampling: &Sampling) -> Result<(), BackendError> {
    let Sampling {
        temperature,
        top_p,
        min_p,
        presence_penalty,
        frequency_penalty,
        repetition_penalty,
        logit_bias,
        top_k: _,
        seed: _,
    } = sampling;
    let bounds = [
        ("temperature", *temperature, 0.0, 2.0),
        ("min_p", *min_p, 0.0, 1.0),
        ("presence_penalty", *presence_penalty, -2.0, 2.0),
        ("frequency_penalty", *frequency_penalty, -2.0, 2.0),
    ];
    for (field, found, min, max) in bounds {
        if !(min..=max).contains(&found) {
            return bad(field, found, &format!("{min} to {max}"));
        }
    }
    if !(*top_p > 0.0 && *top_p <= 1.0) {
        return bad("top_p", top_p, "more than 0, at most 1");
    }
    if !(*repetition_penalty > 0.0 && repetition_penalty.is_finite()) {
        return bad("repetition_penalty", repetition_penalty, "a finite number above 0");
    }
    if logit_bias.len() > BIASES_MAX {
        return bad("number of logit_bias", logit_bias.len(), &format!("at most {BIASES_MAX}"));
    }
    match logit_bias.iter().find(|(_, bias)| !(-100.0..=100.0).contains(*bias)) {
        Some((token, bias)) => bad(&format!("logit_bias of token {token}"), bias, "-100 to 100"),
        None => Ok(()),
    }
}

fn bad<T>(field: &str, found: impl std::fmt::Display, expected: &str) -> Result<T, BackendError> {
    Err(BackendError::BadRequest { detail: format!("{field} is {found}, expected {expected}") })
}

#[cfg(test)]
mod tests {
    use super::super::backend::Prompt;
    use super::*;

    #[test]
    fn each_bound_is_told_with_its_field() {
        let asked = GenerateRequest::new(Prompt::template("x"), 4);
        let with = |sampling: Sampling| GenerateRequest { sampling, ..asked.clone() };
        let d = Sampling::default();
        let wrong = [
            (
                GenerateRequest { tokens_max: 0, ..asked.clone() },
                "tokens_max is 0, expected at least 1",
            ),
            (
                GenerateRequest { tokens_min: 5, ..asked.clone() },
                "tokens_min is 5, expected at most tokens_max, which is 4",
            ),
            (
                GenerateRequest { logprobs: Some(21), ..asked.clone() },
                "logprobs is 21, expected 0 to 20",
            ),
            (
                with(Sampling { temperature: f32::NAN, ..d.clone() }),
                "temperature is NaN, expected 0 to 2",
            ),
            (
                with(Sampling { temperature: -0.1, ..d.clone() }),
                "temperature is -0.1, expected 0 to 2",
            ),
            (
                with(Sampling { top_p: 0.0, ..d.clone() }),
                "top_p is 0, expected more than 0, at most 1",
            ),
            (with(Sampling { min_p: f32::INFINITY, ..d.clone() }), "min_p is inf, expected 0 to 1"),
            (
                with(Sampling { presence_penalty: 2.5, ..d.clone() }),
                "presence_penalty is 2.5, expected -2 to 2",
            ),
            (
                with(Sampling { frequency_penalty: f32::NEG_INFINITY, ..d.clone() }),
                "frequency_penalty is -inf, expected -2 to 2",
            ),
            (
                with(Sampling { repetition_penalty: 0.0, ..d.clone() }),
                "repetition_penalty is 0, expected a finite number above 0",
            ),
            (
                with(Sampling { logit_bias: [(7, 101.0)].into(), ..d.clone() }),
                "logit_bias of token 7 is 101, expected -100 to 100",
            ),
        ];
        for (request, detail) in wrong {
            assert_eq!(check(&request), Err(BackendError::BadRequest { detail: detail.into() }));
        }
        assert_eq!(check(&asked), Ok(()));
        assert_eq!(
            check(&with(Sampling { temperature: 2.0, top_p: 1.0, min_p: 1.0, ..d })),
            Ok(())
        );
    }
}
