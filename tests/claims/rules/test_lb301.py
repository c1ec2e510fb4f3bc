"""LB301: BLEU without, or with unlike, signatures."""

from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb301_score_without_signature import rule

NEW, BASE = "sides[0].quality", "sides[1].quality"
MODERN = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.4.3"
SHORT = "#:1|c:mixed|e:no|tok:13a|s:exp|v:2.4.3"
OLD = "BLEU+case.mixed+lang.en-de+numrefs.1+smooth.exp+test.wmt17+tok.13a+version.1.4.2"


def translated(**more):
    planted = {"scaling": [], "standards": []}
    for quality in (NEW, BASE):
        planted |= {f"{quality}.metric": "BLEU", f"{quality}.target": 27.0, f"{quality}.signature": MODERN}
        planted |= {f"{quality}.{name}": None for name in ("low", "high", "standard")}
    for at in range(5):
        planted |= {f"sides[{side}].runs[{at}].curve": None for side in (0, 1)}
    return changes(clean_claim(), {**planted, f"{NEW}.value": 27.4, f"{BASE}.value": 26.9, **more})


GUILTY = {
    "the signature is empty": ({f"{NEW}.signature": ""}, ("warning", f"{NEW}.signature")),
    "the signature is a tool's name": ({f"{BASE}.signature": "sacrebleu 2.4.3"}, ("warning", f"{BASE}.signature")),
    "the text was tokenised before": (
        {f"{NEW}.signature": MODERN.replace("13a", "none"), f"{BASE}.signature": MODERN.replace("13a", "none")[8:]},
        [("warning", f"{NEW}.signature"), ("warning", f"{BASE}.signature")],
    ),
    "the tokenisers differ": ({f"{NEW}.signature": MODERN.replace("13a", "intl")}, ("error", f"{NEW}.signature")),
    "the case differs": ({f"{NEW}.signature": SHORT.replace("mixed", "lc")}, ("error", f"{NEW}.signature")),
    "the numbers of references differ, in two forms": (
        {f"{NEW}.signature": OLD.replace("numrefs.1", "numrefs.3")},
        ("error", f"{NEW}.signature"),
    ),
    "one is a fraction": ({f"{NEW}.value": 0.274}, ("warning", f"{NEW}.value")),
}
INNOCENT = {
    "both have one signature": {},
    "two versions of the tool": {f"{NEW}.signature": MODERN.replace("2.4.3", "2.0.0")},
    "one signature in three forms": {f"{NEW}.signature": SHORT, f"{BASE}.signature": OLD},
    "both are fractions": {f"{NEW}.value": 0.274, f"{BASE}.value": 0.269},
    "another score that is called alike": {
        f"{quality}.{name}": value
        for quality in (NEW, BASE)
        for name, value in (("metric", "BLEURT"), ("signature", None))
    },
    "a metric without any value": {
        f"{quality}.{name}": None for quality in (NEW, BASE) for name in ("value", "target", "signature")
    },
}


def claim(planted):
    return translated(**planted)


PLANTED = (
    "a BLEU whose signature does not say how it was tokenised",
    {
        "sides[0].quality.metric": "BLEU",
        "sides[1].quality.metric": "BLEU",
        "sides[0].quality.signature": "nrefs:1|case:mixed",
        "sides[1].quality.signature": "nrefs:1|case:mixed|tok:13a",
    },
)
IN_RECORDS = "a record has no place for a signature: it is not stated"


def test_a_missing_signature_is_asked_for_and_is_no_guilt():
    missing = translated(**{f"{NEW}.signature": None, f"{BASE}.signature": None})
    assert found(rule, missing) == [("not-stated", f"{NEW}.signature"), ("not-stated", f"{BASE}.signature")]


def test_the_finding_holds_both_settings():
    (finding,) = rule.check(translated(**{f"{NEW}.signature": MODERN.replace("13a", "intl")}))
    assert "tokeniser intl and 13a" in finding.found


def test_the_fault_alone_is_found_by_no_other_rule():
    planted = {f"{NEW}.signature": MODERN.replace("13a", "intl")}
    assert other_findings(rule, translated(**planted)) == other_findings(rule, translated())
