//! What a user would see of windows, deadlines, revisions and outages: one readable timeline per behaviour.
//!
//! Sealer and book run together as the actors drive them, on a time that the script counts.

#[cfg(test)]
mod timelines {
    use std::fmt::Write;
    use std::sync::Arc;
    use std::time::Duration;

    use actors::fusion::{Alerts, BookSettings, ExpectedStage, FusionBook, Outcome, Taxonomy};
    use actors::plan::StageIndex;
    use actors::stages::{FuseSettings, PortType, WindowLength};
    use actors::windows::{Sealer, SealerEvent, SealerSettings};
    use media::result::{FusedResult, MissingReason, Timing};
    use media::{Detection, Mono, Observation, Pts, Rect, SpeechSegment, TrackKind, Understanding};

    const OBJECTS: StageIndex = StageIndex(1);
    const SPEECH: StageIndex = StageIndex(2);
    const MEANING: StageIndex = StageIndex(3);
    const NAMES: [&str; 4] = ["", "objects", "speech", "meaning"];

    /// One stream with three stages: objects, speech, meaning.
    struct Script {
        sealer: Sealer,
        book: FusionBook,
        now: Mono,
        seen: String,
    }

    impl Script {
        fn new(paced: bool, fuse: &FuseSettings) -> Self {
            let stages = [
                (OBJECTS, PortType::Objects),
                (SPEECH, PortType::Speech),
                (MEANING, PortType::Understanding),
            ];
            let stages = stages.map(|(index, output)| ExpectedStage {
                index,
                id: NAMES[index.0].into(),
                output,
                applies: true,
            });
            let (stream, run, start) = ("cam".into(), "run".into(), Mono(0));
            let settings = BookSettings::new(stream, run, fuse, paced, start, stages.to_vec());
            let rules = [("crowd".to_owned(), "vision.objects.size() >= 2".to_owned())];
            let mut script = Script {
                sealer: Sealer::new(
                    SealerSettings {
                        length: fuse.window,
                        clip_max: fuse.clip_max,
                        paced,
                        seal_grace: fuse.seal_grace,
                        track_idle: fuse.track_idle,
                        skew_max: Duration::from_secs(10),
                        budget: fuse.budget,
                        decode_delay: Duration::ZERO,
                        clip_budget: None,
                    },
                    start,
                ),
                book: FusionBook::new(
                    settings,
                    Arc::new(Taxonomy::builtin().unwrap()),
                    Arc::new(Alerts::compile(&rules.into()).unwrap()),
                ),
                now: start,
                seen: String::new(),
            };
            script.sealer.track_started(TrackKind::Video, start);
            script.sealer.track_started(TrackKind::Audio, start);
            script
        }

        fn live() -> Self {
            Self::new(true, &FuseSettings::default())
        }

        /// Goes on to `ms`, waking whoever asked for it on the way.
        fn at(&mut self, ms: u64) -> &mut Self {
            let until = Mono::from_ms(ms);
            loop {
                let wakes = [self.sealer.next_wakeup(), self.book.next_wakeup(self.now)];
                match wakes.into_iter().flatten().min().filter(|wake| *wake <= until) {
                    Some(wake) => self.now = self.now.max(wake),
                    None => break,
                }
                self.sealer.tick(self.now);
                self.look();
            }
            self.now = until;
            self
        }

        /// Both tracks have delivered up to `pts_ms`.
        fn media(&mut self, pts_ms: i64) -> &mut Self {
            let pts = Pts::from_ms(pts_ms);
            self.sealer.delivered(TrackKind::Audio, pts, self.now, self.now);
            self.sealer.delivered(TrackKind::Video, pts, self.now, self.now);
            self.look()
        }

        fn end(&mut self) -> &mut Self {
            self.sealer.ended(self.now);
            self.look()
        }

        fn disconnect(&mut self) -> &mut Self {
            self.sealer.disconnected(self.now);
            self.note("disconnected");
            self.look()
        }

        fn reconnect(&mut self) -> &mut Self {
            let resumed = self.sealer.reconnected(self.now);
            self.note(&format!("reconnected, media goes on at {resumed}"));
            self.look()
        }

        fn says(&mut self, window: u64, stage: StageIndex) -> &mut Self {
            let ms = window as i64 * 1_000 + 500;
            let pts = Pts::from_ms(ms);
            let observation = match stage {
                OBJECTS => Observation::Objects { pts, objects: vec![car(1), car(2)] },
                SPEECH => Observation::Speech(SpeechSegment {
                    utterance: window,
                    text: "the train is late".into(),
                    start_ms: ms - 400,
                    end_ms: ms,
                    is_final: true,
                    language: "en".into(),
                    confidence: 0.9,
                }),
                _ => Observation::Understanding { pts, answer: meaning() },
            };
            self.book.offer(self.now, window, stage, observation);
            self.ends(window, stage, Outcome::Ok)
        }

        fn fails(&mut self, window: u64, stage: StageIndex, reason: MissingReason) -> &mut Self {
            self.ends(window, stage, Outcome::Missing(reason))
        }

        fn ends(&mut self, window: u64, stage: StageIndex, outcome: Outcome) -> &mut Self {
            let id = NAMES[stage.0];
            let timing = Timing { stage: id.into(), queue_ms: 1.0, compute_ms: 20.0, batch: 1 };
            self.book.answered(self.now, window, stage, outcome, Some(timing));
            self.note(&format!("{id} answers window {window}: {outcome:?}"));
            self.look()
        }

        fn look(&mut self) -> &mut Self {
            while let Some(event) = self.sealer.next_event() {
                match event {
                    SealerEvent::Sealed(seal) => {
                        self.note(&format!("window {} sealed", seal.window.index));
                        self.book.sealed(self.now, seal);
                    }
                    SealerEvent::Skipped { from, to } => {
                        self.note(&format!("windows {from} to {to} skipped"));
                        self.book.skipped(to);
                    }
                }
            }
            for emit in self.book.poll(self.now) {
                self.note(&shown(&emit.result));
            }
            assert!(self.book.ledger().balances());
            self
        }

        fn note(&mut self, what: &str) {
            writeln!(self.seen, "{:>6} {what}", self.now.0 / 1_000).unwrap();
        }

        /// The whole timeline and its counts.
        fn timeline(&self) -> String {
            let (w, o) = (self.book.ledger().windows, self.book.ledger().observations);
            format!(
                "{}sealed {} = complete {} + partial {} + open {}; revisions {}\n\
                 offered {} = fused {} + late {} + dropped {} + held {}",
                self.seen,
                w.sealed,
                w.complete,
                w.partial,
                w.open,
                self.book.ledger().revisions,
                o.offered,
                o.fused,
                o.late,
                o.dropped,
                o.held,
            )
        }
    }

    fn car(track: u64) -> Detection {
        let rect = Rect(0.1 * track as f32, 0.2, 0.1, 0.1);
        Detection { label: "car".into(), score: 0.9, rect, track: Some(track) }
    }

    fn meaning() -> Box<Understanding> {
        Box::new(Understanding {
            category: Some("transport".into()),
            scores: [("transport".into(), 0.8)].into(),
            summary: None,
            summary_from: None,
            summary_age_ms: 0,
            sentiment: None,
            flags: vec![],
            keywords: vec![],
            language: Some("en".into()),
            model: "m".into(),
            backend: "embedded".into(),
            age_ms: 0,
            truncated: false,
        })
    }

    fn shown(r: &FusedResult) -> String {
        let mut line = format!(
            "=> window {} [{}..{}) {:?} revision {} seq {} latency {}",
            r.window.index,
            r.window.start_ms,
            r.window.end_ms,
            r.status,
            r.revision,
            r.stream_seq,
            r.latency_ms
        );
        if let Some(age) = r.age_ms {
            write!(line, " age {age}").unwrap();
        }
        if let Some(processing) = r.processing_ms {
            write!(line, " processing {processing}").unwrap();
        }
        let (vision, audio) = (r.vision.as_ref().unwrap(), r.audio.as_ref().unwrap());
        write!(line, " | objects {} speech {}", vision.objects.len(), audio.speech.len()).unwrap();
        if let Some(best) = r.fusion.labels.first() {
            write!(line, " {} {:.2} from {}", best.label, best.score, best.evidence.len()).unwrap();
        }
        for alert in &r.fusion.alerts {
            write!(line, " alert {}@{}", alert.name, alert.pts_ms).unwrap();
        }
        for missing in &r.missing {
            write!(line, " missing {}:{:?}", missing.stage, missing.reason).unwrap();
        }
        line
    }

    #[test]
    fn a_complete_window_goes_out_at_its_last_answer() {
        let mut s = Script::live();
        s.at(40).media(0).at(700).says(0, OBJECTS).at(1_050).media(1_000);
        s.at(1_090).says(0, SPEECH).at(1_230).says(0, MEANING);
        insta::assert_snapshot!(s.timeline(), @r"
           700 objects answers window 0: Ok
          1050 window 0 sealed
          1090 speech answers window 0: Ok
          1230 meaning answers window 0: Ok
          1230 => window 0 [0..1000) Complete revision 0 seq 0 latency 180 age 190 | objects 2 speech 1 transport 0.87 from 3 alert crowd@0
        sealed 1 = complete 1 + partial 0 + open 0; revisions 0
        offered 3 = fused 3 + late 0 + dropped 0 + held 0
        ");
    }

    #[test]
    fn at_the_deadline_it_goes_out_with_what_is_missing_and_why() {
        let mut s = Script::live();
        s.at(40).media(0).at(700).says(0, OBJECTS).at(1_050).media(1_000);
        s.at(1_090).fails(0, SPEECH, MissingReason::UnsupportedLanguage).at(2_000);
        insta::assert_snapshot!(s.timeline(), @r"
           700 objects answers window 0: Ok
          1050 window 0 sealed
          1090 speech answers window 0: Missing(UnsupportedLanguage)
          1525 => window 0 [0..1000) Partial revision 0 seq 0 latency 475 age 485 | objects 2 speech 0 transport 0.43 from 1 alert crowd@0 missing speech:UnsupportedLanguage missing meaning:Deadline
        sealed 1 = complete 0 + partial 1 + open 0; revisions 0
        offered 1 = fused 1 + late 0 + dropped 0 + held 0
        ");
    }

    #[test]
    fn a_late_answer_becomes_a_revision() {
        let mut s = Script::live();
        s.at(40).media(0).at(700).says(0, OBJECTS).at(1_050).media(1_000).says(0, SPEECH);
        s.at(1_900).says(0, MEANING).at(2_000).says(0, MEANING);
        insta::assert_snapshot!(s.timeline(), @r"
           700 objects answers window 0: Ok
          1050 window 0 sealed
          1050 speech answers window 0: Ok
          1525 => window 0 [0..1000) Partial revision 0 seq 0 latency 475 age 485 | objects 2 speech 1 transport 0.59 from 2 alert crowd@0 missing meaning:Deadline
          1900 meaning answers window 0: Ok
          1900 => window 0 [0..1000) Complete revision 1 seq 1 latency 850 age 860 | objects 2 speech 1 transport 0.87 from 3 alert crowd@0
          2000 meaning answers window 0: Ok
        sealed 1 = complete 0 + partial 1 + open 0; revisions 1
        offered 4 = fused 3 + late 1 + dropped 0 + held 0
        ");
    }

    #[test]
    fn a_window_that_is_ready_first_waits_for_the_one_before_it() {
        let mut s = Script::live();
        s.at(40).media(0).at(1_050).media(1_000).says(0, OBJECTS).says(0, SPEECH);
        s.at(1_060).media(2_000);
        s.says(1, OBJECTS).says(1, SPEECH).at(1_200).says(1, MEANING).at(1_600);
        insta::assert_snapshot!(s.timeline(), @r"
          1050 window 0 sealed
          1050 objects answers window 0: Ok
          1050 speech answers window 0: Ok
          1060 window 1 sealed
          1060 objects answers window 1: Ok
          1060 speech answers window 1: Ok
          1200 meaning answers window 1: Ok
          1525 => window 0 [0..1000) Partial revision 0 seq 0 latency 475 age 485 | objects 2 speech 1 transport 0.59 from 2 alert crowd@0 missing meaning:Deadline
          1525 => window 1 [1000..2000) Complete revision 0 seq 1 latency 465 age 465 | objects 2 speech 1 transport 0.87 from 3 alert crowd@1000
        sealed 2 = complete 1 + partial 1 + open 0; revisions 0
        offered 5 = fused 5 + late 0 + dropped 0 + held 0
        ");
    }

    #[test]
    fn an_unpaced_clip_waits_for_every_stage() {
        let clip = FuseSettings { window: WindowLength::Clip, ..FuseSettings::default() };
        let mut s = Script::new(false, &clip);
        s.at(10).media(0).at(40).media(4_960).at(45).end();
        s.at(90).says(0, OBJECTS).at(150).says(0, SPEECH).at(9_000).says(0, MEANING);
        insta::assert_snapshot!(s.timeline(), @r"
            45 window 0 sealed
            90 objects answers window 0: Ok
           150 speech answers window 0: Ok
          9000 meaning answers window 0: Ok
          9000 => window 0 [0..4961) Complete revision 0 seq 0 latency 8955 processing 9000 | objects 2 speech 1 transport 0.87 from 3 alert crowd@0
        sealed 1 = complete 1 + partial 0 + open 0; revisions 0
        offered 3 = fused 3 + late 0 + dropped 0 + held 0
        ");
    }

    #[test]
    fn an_outage_skips_windows_and_says_which() {
        let mut s = Script::live();
        s.at(40).media(0).at(1_050).media(1_000);
        for stage in [OBJECTS, SPEECH, MEANING] {
            s.says(0, stage);
        }
        s.at(1_400).media(1_360).at(1_500).disconnect();
        for stage in [OBJECTS, SPEECH, MEANING] {
            s.says(1, stage);
        }
        s.at(7_300).reconnect().at(7_320).media(7_260).at(8_060).media(8_000);
        for stage in [OBJECTS, SPEECH, MEANING] {
            s.says(7, stage);
        }
        insta::assert_snapshot!(s.timeline(), @r"
          1050 window 0 sealed
          1050 objects answers window 0: Ok
          1050 speech answers window 0: Ok
          1050 meaning answers window 0: Ok
          1050 => window 0 [0..1000) Complete revision 0 seq 0 latency 0 age 10 | objects 2 speech 1 transport 0.87 from 3 alert crowd@0
          1500 disconnected
          1500 objects answers window 1: Ok
          1500 speech answers window 1: Ok
          1500 meaning answers window 1: Ok
          2240 window 1 sealed
          2240 => window 1 [1000..2000) Complete revision 0 seq 1 latency 0 age 200 | objects 2 speech 1 transport 0.87 from 3 alert crowd@1000
          7300 reconnected, media goes on at 7.260s
          7300 windows 2 to 6 skipped
          8060 window 7 sealed
          8060 objects answers window 7: Ok
          8060 speech answers window 7: Ok
          8060 meaning answers window 7: Ok
          8060 => window 7 [7000..8000) Complete revision 0 seq 2 latency 0 age 0 | objects 2 speech 1 transport 0.87 from 3 alert crowd@7000
        sealed 3 = complete 3 + partial 0 + open 0; revisions 0
        offered 9 = fused 9 + late 0 + dropped 0 + held 0
        ");
    }
}
