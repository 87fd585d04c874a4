//! What other programs are told when there is no answer: status, and the body that OpenAI's and vLLM's clients
//! read. One rule: a refusal that will pass says when to come back.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::language::BackendError;
use serde_json::{Value, json};

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// The field at fault.
    pub(super) param: Option<String>,
    pub(super) retry_after_ms: Option<u64>,
}

impl ApiError {
    /// A field that is not as expected.
    pub(super) fn field(param: &str, message: impl Into<String>) -> Self {
        ApiError {
            status: StatusCode::BAD_REQUEST,
            message: format!("`{param}`: {}", message.into()),
            param: Some(param.to_owned()),
            retry_after_ms: None,
        }
    }

    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        ApiError { status, message: message.into(), param: None, retry_after_ms: None }
    }

    pub(super) fn later(status: StatusCode, message: impl Into<String>, after_ms: u64) -> Self {
        ApiError { retry_after_ms: Some(after_ms), ..ApiError::new(status, message) }
    }

    /// A model that nobody serves here.
    pub(super) fn no_model(asked: &str, known: &[&str]) -> Self {
        let known = known.join("`, `");
        let message = format!("the model `{asked}` does not exist; there is `{known}`");
        let error = ApiError::new(StatusCode::NOT_FOUND, message);
        ApiError { param: Some("model".into()), ..error }
    }

    /// Name of the kind of error, as vLLM has it; OpenAI's clients decide by the status.
    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "AuthenticationError",
            StatusCode::FORBIDDEN => "PermissionDeniedError",
            StatusCode::NOT_FOUND => "NotFoundError",
            StatusCode::TOO_MANY_REQUESTS => "RateLimitError",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailableError",
            status if status.is_client_error() => "BadRequestError",
            _ => "InternalServerError",
        }
    }

    /// `{"error": {message, type, param, code}}`
    pub(super) fn body(&self) -> Value {
        json!({ "error": {
            "message": self.message,
            "type": self.kind(),
            "param": self.param,
            "code": self.status.as_u16(),
        } })
    }
}

impl From<BackendError> for ApiError {
    fn from(error: BackendError) -> Self {
        let message = error.to_string();
        match error {
            BackendError::Busy { retry_after_ms, .. } => {
                ApiError::later(StatusCode::TOO_MANY_REQUESTS, message, retry_after_ms)
            }
            BackendError::Unavailable { retry_after_ms, .. } => {
                ApiError::later(StatusCode::SERVICE_UNAVAILABLE, message, retry_after_ms)
            }
            // Its successor is on the way.
            BackendError::Died { .. } => {
                ApiError::later(StatusCode::SERVICE_UNAVAILABLE, message, 1_000)
            }
            BackendError::TooLong { .. } | BackendError::BadRequest { .. } => {
                ApiError::new(StatusCode::BAD_REQUEST, message)
            }
            BackendError::TimeLimit => ApiError::new(StatusCode::GATEWAY_TIMEOUT, message),
            BackendError::Failed { .. } => {
                ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if let Some(ms) = self.retry_after_ms {
            // Whole seconds are all that the header knows.
            let seconds = HeaderValue::from(ms.div_ceil(1_000).max(1));
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(error: BackendError) -> (u16, Option<String>, String) {
        let error = ApiError::from(error);
        let kind = error.body()["error"]["type"].as_str().unwrap().to_owned();
        let response = error.into_response();
        let after = response.headers().get(header::RETRY_AFTER);
        (response.status().as_u16(), after.map(|v| v.to_str().unwrap().to_owned()), kind)
    }

    #[test]
    fn each_failure_has_its_status_and_what_passes_says_when() {
        let detail = || "x".to_owned();
        let busy = BackendError::Busy { waiting: 64, retry_after_ms: 1_200 };
        assert_eq!(answered(busy), (429, Some("2".into()), "RateLimitError".into()));
        let away = BackendError::Unavailable { detail: detail(), retry_after_ms: 50 };
        assert_eq!(answered(away), (503, Some("1".into()), "ServiceUnavailableError".into()));
        let died = BackendError::Died { detail: detail() };
        assert_eq!(answered(died).0, 503);
        let long = BackendError::TooLong { tokens: 9_000, limit: 4_096 };
        assert_eq!(answered(long), (400, None, "BadRequestError".into()));
        assert_eq!(answered(BackendError::BadRequest { detail: detail() }).0, 400);
        let failed = BackendError::Failed { detail: detail() };
        assert_eq!(answered(failed), (500, None, "InternalServerError".into()));
        assert_eq!(answered(BackendError::TimeLimit).0, 504);
    }

    #[test]
    fn the_body_is_what_clients_of_openai_read() {
        let body = ApiError::no_model("gpt-4", &["a", "b"]).body();
        assert_eq!(
            body,
            json!({ "error": {
                "message": "the model `gpt-4` does not exist; there is `a`, `b`",
                "type": "NotFoundError", "param": "model", "code": 404,
            } })
        );
    }
}
