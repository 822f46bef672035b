/**
 * One style for screen, dark screen and paper. Text and marks keep a contrast of at least 4.5 to their ground in both
 * schemes; what is wider than the page scrolls inside its own box.
 */
export const reportStyle = `
:root{color-scheme:light dark;--ground:#ffffff;--text:#1a1d21;--soft:#55595f;--line:#c9cdd2;--box:#f3f4f6;
--pass:#12653a;--fail:#a31621;--inconclusive:#7a4d00;--unmeasured:#4a4f57;--accent:#1c5d99}
@media (prefers-color-scheme:dark){:root{--ground:#14171a;--text:#e6e8ea;--soft:#a9b0b7;--line:#41474e;--box:#1f2428;
--pass:#6fd39b;--fail:#ff8b8f;--inconclusive:#f0b95a;--unmeasured:#b8bec5;--accent:#7db8ee}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--text);font:1rem/1.55 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1,h2,h3,p,li,dd,figcaption,caption{overflow-wrap:anywhere}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 1rem}
h2{font-size:1.25rem;margin:2.5rem 0 .75rem;padding-top:.75rem;border-top:1px solid var(--line)}
h3{font-size:1.05rem;margin:1.5rem 0 .5rem}
p,ul,dl,figure,.scroll{margin:0 0 1rem}
ul{padding-left:1.25rem}
code{font:.85em/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
dl>div{display:grid;grid-template-columns:minmax(7rem,14rem) minmax(0,1fr);gap:0 1rem;padding:.2rem 0}
dt{color:var(--soft)}
dd{margin:0}
.verdict{padding:.75rem 1rem;border-left:.35rem solid;background:var(--box)}
.verdict strong,.mark{text-transform:uppercase;letter-spacing:.03em;font-weight:700}
.mark{font-size:.85em}
.pass{border-color:var(--pass)}.fail{border-color:var(--fail)}
.inconclusive{border-color:var(--inconclusive)}.unmeasured{border-color:var(--unmeasured)}
.pass strong,.mark.pass{color:var(--pass)}.fail strong,.mark.fail{color:var(--fail)}
.inconclusive strong,.mark.inconclusive{color:var(--inconclusive)}
.unmeasured strong,.mark.unmeasured{color:var(--unmeasured)}
.scroll{overflow-x:auto}
.scroll:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
table{border-collapse:collapse;min-width:100%;font-size:.9rem}
caption{text-align:left;color:var(--soft);padding-bottom:.35rem}
th,td{padding:.35rem .75rem .35rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);min-width:5rem;max-width:26rem}
thead th{color:var(--soft);font-weight:600}
tbody th{font-weight:600;min-width:7rem}
td:last-child:not(.figure){min-width:13rem}
.figure{text-align:right;font-variant-numeric:tabular-nums}
.notes{font-size:.85rem;color:var(--soft)}
figure svg{display:block;width:100%;max-width:38rem;height:auto;color:var(--text)}
figcaption{margin-top:.5rem;font-size:.9rem;color:var(--soft);max-width:38rem}
figcaption b{color:var(--text)}
@media (max-width:30rem){dl>div{grid-template-columns:1fr;padding:.35rem 0}h1{font-size:1.4rem}}
@media print{:root{--ground:#fff;--text:#000;--soft:#333;--line:#999;--box:#fff;--pass:#0b4f2b;--fail:#8a0f19;--inconclusive:#5f3b00;--unmeasured:#333}
main{max-width:none;padding:0}.scroll{overflow:visible}tr,figure,.verdict{break-inside:avoid}h2,h3{break-after:avoid}
table{font-size:.75rem}th,td,tbody th,td:last-child:not(.figure){overflow-wrap:anywhere;min-width:0}}
`;
