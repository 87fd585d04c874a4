//! Who may ask: with a token, whoever sends it; without, programs and pages of this machine only.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::{App, language, refusal};
use crate::plan::Secret;

pub(super) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    // Probes have no token, and learn nothing that is worth one.
    if matches!(request.uri().path(), "/healthz" | "/readyz" | "/health") {
        return next.run(request).await;
    }
    match allowed(app.token.as_deref(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err((status, reason)) => {
            let mut response = match language::owns(request.uri().path()) {
                true => language::refusal(status, reason),
                false => refusal(status, reason.into()),
            };
            if status == StatusCode::UNAUTHORIZED {
                let challenge = header::HeaderValue::from_static("Bearer");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            }
            response
        }
    }
}

fn allowed(token: Option<&Secret>, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok());
    if let Some(token) = token {
        let offered = text(header::AUTHORIZATION).and_then(|v| {
            let (scheme, rest) = v.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| rest.trim())
        });
        return match offered {
            Some(offered) if token.is(offered.as_bytes()) => Ok(()),
            Some(_) => Err((StatusCode::UNAUTHORIZED, "wrong token")),
            None => Err((StatusCode::UNAUTHORIZED, "expected `Authorization: Bearer TOKEN`")),
        };
    }
    // Listening on loopback keeps other machines out, but not a web page in this machine's browser: neither one
    // whose name was pointed at 127.0.0.1, nor a foreign one that opens a WebSocket.
    let host = text(header::HOST).unwrap_or_default();
    if !is_loopback(host) {
        let reason = "without a token only `localhost`, `127.0.0.1` and `[::1]` are answered";
        return Err((StatusCode::FORBIDDEN, reason));
    }
    match text(header::ORIGIN) {
        Some(origin)
            if origin.split_once("://").is_none_or(|(_, o)| !o.eq_ignore_ascii_case(host)) =>
        {
            Err((StatusCode::FORBIDDEN, "without a token pages of other sites are not answered"))
        }
        _ => Ok(()),
    }
}

/// Whether a `Host` header names this machine's loopback.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(token: Option<&str>, headers: &[(&str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: header::HeaderName = name.parse().unwrap();
            map.insert(name, value.parse().unwrap());
        }
        let token = token.map(|t| Secret::from(t.to_owned()));
        allowed(token.as_ref(), &map).err().map_or(200, |(status, _)| status.as_u16())
    }

    #[test]
    fn a_page_of_another_site_is_kept_out() {
        for (headers, want) in [
            (vec![("host", "127.0.0.1:8080")], 200),
            (vec![("host", "localhost:8080"), ("origin", "http://localhost:8080")], 200),
            (vec![("host", "[::1]:8080")], 200),
            (vec![("host", "evil.example:8080")], 403),
            (vec![("host", "127.0.0.1.evil.example")], 403),
            (vec![("host", "127.0.0.1:8080"), ("origin", "https://evil.example")], 403),
            (vec![("host", "127.0.0.1:8080"), ("origin", "null")], 403),
            (vec![], 403),
        ] {
            assert_eq!(status(None, &headers), want, "{headers:?}");
        }
    }

    #[test]
    fn with_a_token_the_token_decides() {
        for (headers, want) in [
            (vec![("host", "cams.lan"), ("authorization", "Bearer opensesame")], 200),
            (vec![("host", "cams.lan"), ("authorization", "bearer opensesame")], 200),
            (vec![("host", "127.0.0.1")], 401),
            (vec![("authorization", "Bearer opensesam")], 401),
            (vec![("authorization", "Basic opensesame")], 401),
            (vec![("authorization", "opensesame")], 401),
        ] {
            assert_eq!(status(Some("opensesame"), &headers), want, "{headers:?}");
        }
    }
}
