//! The reference's numbers for all-MiniLM-L6-v2: pieces by the tokenizer that
//! the model was published with, vectors by a forward pass in doubles.

use super::files::{VOCABULARY_BYTES_MAX, json};
use super::wordpiece::{WordPiece, from_json};
use super::{add, open};
use std::path::Path;
use std::time::Instant;

struct Golden {
    text: &'static str,
    pieces: &'static [u32],
    /// The first numbers of the vector.
    begin: [f32; 8],
}

const GOLDEN: &[Golden] = &[
    Golden {
        text: "",
        pieces: &[101, 102],
        begin: [
            -0.1188384, 0.0482987, -0.0025481, -0.0110112, 0.0519508, 0.0102917, 0.1154332,
            0.0007008,
        ],
    },
    Golden {
        text: "This is an example sentence",
        pieces: &[101, 2023, 2003, 2019, 2742, 6251, 102],
        begin: [
            0.0676569, 0.0634959, 0.0487131, 0.0793050, 0.0374481, 0.0026528, 0.0393750, -0.0070985,
        ],
    },
    Golden {
        text: "naïve café — déjà vu, Ångström",
        pieces: &[101, 15743, 7668, 1517, 2139, 3900, 24728, 1010, 17076, 15687, 102],
        begin: [
            0.0217580, -0.0213033, 0.0455249, 0.0409943, 0.0675755, -0.0055021, 0.0386914,
            -0.0580370,
        ],
    },
    Golden {
        text: "İSTANBUL ẞß ΣΑΣ ﬁ",
        pieces: &[101, 9960, 1096, 19310, 1173, 14608, 29733, 1984, 102],
        begin: [
            0.0260334, -0.0220422, 0.0332243, 0.0423168, -0.113486, 0.0648164, 0.0991938, 0.0874153,
        ],
    },
    Golden {
        text: "机器学习 カタカナ 한국어",
        pieces: &[
            101, 100, 100, 1817, 100, 1700, 30235, 30226, 30241, 1469, 30006, 30021, 29991, 30014,
            30020, 29999, 30008, 102,
        ],
        begin: [
            0.0125039, 0.0956113, 0.0135194, -0.0423007, -0.0464112, -0.0384457, 0.0302802,
            0.0060298,
        ],
    },
    Golden {
        text: "नमस्ते दुनिया مرحبا",
        pieces: &[
            101, 1327, 29867, 29874, 29859, 1325, 29863, 29877, 29868, 29876, 1295, 17149, 29820,
            29816, 25573, 102,
        ],
        begin: [
            0.0126749, 0.0553833, 0.0259227, -0.0197594, -0.0585747, 0.0420919, 0.1784675,
            -0.0313642,
        ],
    },
    Golden {
        text: "a\u{0}b\u{200b}c�d\u{a0}e\u{85}f\u{2028}g",
        pieces: &[101, 5925, 2094, 1041, 2546, 1043, 102],
        begin: [
            -0.0375744, -0.0057673, 0.0549518, -0.0236489, -0.0290314, 0.0619245, 0.1288641,
            -0.0009140,
        ],
    },
    Golden {
        text: "[CLS] x [SEP][MASK][pad] [UNK]",
        pieces: &[101, 101, 1060, 102, 103, 1031, 11687, 1033, 100, 102],
        begin: [
            -0.0786582, -0.0292559, 0.0403242, -0.0607132, -0.0259877, 0.0355370, 0.1501448,
            -0.0176033,
        ],
    },
    Golden {
        text: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
        pieces: &[
            101, 22038, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348,
            20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348,
            20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348,
            20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348, 20348,
            20348, 20348, 20348, 100, 102,
        ],
        begin: [
            -0.0862487, 0.0042919, -0.0348465, -0.0971435, -0.0285787, -0.0232743, 0.0551322,
            0.0413605,
        ],
    },
    Golden {
        text: "👩\u{200d}👩\u{200d}👧 😀",
        pieces: &[101, 100, 100, 102],
        begin: [
            0.0040366, 0.0150921, 0.0804799, 0.0011475, 0.0150436, -0.0040860, 0.1167043, 0.0142595,
        ],
    },
    Golden {
        text: "ẹ́́ẹ́́ẹ́́",
        pieces: &[101, 25212, 2063, 102],
        begin: [
            -0.0759522, 0.0503066, 0.0767618, -0.0357982, -0.0019891, -0.0888712, 0.1532409,
            0.0579667,
        ],
    },
    Golden {
        text: "fn main() { a->b::<T>(&mut x) != 0xFF; }",
        pieces: &[
            101, 1042, 2078, 2364, 1006, 1007, 1063, 1037, 1011, 1028, 1038, 1024, 1024, 1026,
            1056, 1028, 1006, 1004, 14163, 2102, 1060, 1007, 999, 1027, 1014, 2595, 4246, 1025,
            1065, 102,
        ],
        begin: [
            -0.0303486, 0.0572634, -0.0303622, -0.0417795, 0.0082356, 0.0254096, 0.0342172,
            0.0341976,
        ],
    },
    Golden {
        text: "¿«»…‘’“”¶§ $+<=>^`|~ ₿€",
        pieces: &[
            101, 1094, 1077, 1090, 1529, 1520, 1521, 1523, 1524, 1086, 1073, 1002, 1009, 1026,
            1027, 1028, 1034, 1036, 1064, 1066, 100, 102,
        ],
        begin: [
            -0.0231158, 0.0534788, 0.0526969, -0.0038896, -0.0331437, 0.0590726, 0.0648807,
            0.0251661,
        ],
    },
];

/// Of a sentence that is said sixty times, which is more than is looked at.
const LONG: [f32; 8] =
    [-0.0059108, 0.0216663, -0.0744856, 0.0393873, -0.0555046, -0.0372098, -0.0617523, 0.0635482];

#[test]
fn pieces_and_vectors_are_those_of_the_reference() {
    let Some(source) = std::env::var_os("FRACTAL_TEST_MODEL") else {
        println!("skipped: no model (FRACTAL_TEST_MODEL)");
        return;
    };
    let into = tempfile::tempdir().expect("a temporary directory");
    let added = add(Path::new(&source), into.path()).expect("a model that can be taken in");
    assert_eq!(added.dimensions, 384);
    check_pieces(&added.dir);
    let model = open(&added.dir).expect("a model that can be opened");
    let texts: Vec<_> = GOLDEN.iter().map(|golden| golden.text).collect();
    let vectors = model.embed(&texts).expect("vectors");
    for (golden, vector) in GOLDEN.iter().zip(&vectors) {
        check_begin(golden.text, vector, golden.begin);
        let alone = model.embed(&[golden.text]).expect("a vector");
        assert_eq!(&alone[0], vector, "{:?} alone is another one", golden.text);
    }
    let long = "The experiment failed with CUDA out of memory at batch size 64. ".repeat(60);
    check_begin("long", &model.embed(&[&long]).expect("a vector")[0], LONG);
}

/// Both forms of a vocabulary say the same.
fn check_pieces(dir: &Path) {
    let lines = WordPiece::open(dir).expect("a vocabulary");
    let tokenizer = dir.join("tokenizer.json");
    let other = tokenizer.exists().then(|| {
        let json = json(&tokenizer, VOCABULARY_BYTES_MAX).expect("JSON");
        from_json(&json).expect("a tokenizer")
    });
    for words in [Some(lines), other].into_iter().flatten() {
        for golden in GOLDEN {
            assert_eq!(words.encode(golden.text, 256), golden.pieces, "{:?}", golden.text);
        }
    }
}

fn check_begin(text: &str, vector: &[f32], begin: [f32; 8]) {
    for (found, expect) in vector.iter().zip(begin) {
        assert!((found - expect).abs() < 2e-6, "{text:?}: {:?}\n{begin:?}", &vector[..8]);
    }
}

#[test]
#[ignore = "figures, for a release build"]
fn figures_of_a_question() {
    let Some(source) = std::env::var_os("FRACTAL_TEST_MODEL") else {
        println!("skipped: no model (FRACTAL_TEST_MODEL)");
        return;
    };
    let into = tempfile::tempdir().expect("a temporary directory");
    let start = Instant::now();
    let added = add(Path::new(&source), into.path()).expect("a model that can be taken in");
    println!("add: {:?}", start.elapsed());
    let question = "which learning rate was best for the small model?";
    let long = "The experiment failed with CUDA out of memory at batch size 64. ".repeat(60);
    let model = open(&added.dir).expect("a model that can be opened");
    let median = |what: &str, each: &dyn Fn()| {
        let time = |_| {
            let start = Instant::now();
            each();
            start.elapsed()
        };
        let mut times: Vec<_> = (0..9).map(time).collect();
        times.sort();
        println!("{what}: median {:?}, worst {:?}", times[4], times[8]);
    };
    median("open", &|| drop(open(&added.dir).expect("a model")));
    median("open and a question", &|| {
        drop(open(&added.dir).expect("a model").embed(&[question]).expect("a vector"));
    });
    median("a question", &|| drop(model.embed(&[question]).expect("a vector")));
    median("256 pieces", &|| drop(model.embed(&[&long]).expect("a vector")));
    median("32 times 256 pieces", &|| drop(model.embed(&[long.as_str(); 32]).expect("vectors")));
}
