/**
 * The library: everything that the command line does, as functions. Start with `openModel`; `planSession` shows what
 * would happen before anything is loaded.
 */

export { type ActivationProfile, parseProfile, profileText } from './acquire/activation-profile.js';
export { comparePolicies, type PricedPolicy } from './acquire/compare.js';
export type { Placement } from './acquire/placement.js';
export { type PolicyName, policyNames } from './acquire/policy.js';
export { formatByteSize, parseByteSize } from './base/byte-size.js';
export {
  BudgetError,
  ExecutionError,
  exitCodes,
  InputError,
  InterruptedError,
  NumericsError,
  SetupError,
  TamperedError,
  UsageError,
  WaybillError,
} from './base/errors.js';
export {
  type CacheEntry,
  type CacheListing,
  listCache,
  removeFromCache,
} from './checkpoint/cache-listing.js';
export { type Checkpoint, openCheckpoint } from './checkpoint/checkpoint.js';
export { resolveModel } from './checkpoint/hub.js';
export { openOrPrepare } from './checkpoint/open-or-prepare.js';
export { openTokenizer, type Tokenizer } from './checkpoint/tokenizer.js';
export { ActivationCounter } from './generate/activation-counter.js';
export type { BackendChoice } from './generate/choose-backend.js';
export { type GenerateCall, generate, type PromptOrIds } from './generate/generate.js';
export { Generation, type GenerationHooks } from './generate/generation.js';
export { compareOpTraces, type OpComparison, type OpDifference } from './generate/op-diff.js';
export { type GenerateOptions, generateOptions } from './generate/options.js';
export type {
  FinishReason,
  GenerationOutcome,
  GenerationTimes,
  RequestOutcome,
  TokenEvent,
} from './generate/outcome.js';
export { type Score, scoreTokens } from './generate/score.js';
export {
  closePlan,
  openModel,
  openSession,
  planSession,
  Session,
  type SessionPlan,
} from './generate/session.js';
export { type SessionHooks, type SessionOptions, sessionOptions } from './generate/session-options.js';
export { type ArchiveSources, type BuiltArchive, buildArchive } from './lab/archive.js';
export { readArchiveFile, type WrittenArchive, writeArchiveFile } from './lab/archive-file.js';
export {
  type Audit,
  type AuditCheck,
  type AuditedArchive,
  type AuditOptions,
  auditArchive,
  auditJson,
} from './lab/audit.js';
export { type Evaluation, evaluateRun } from './lab/evaluation.js';
export { freezeProtocol } from './lab/freeze.js';
export type { GateResult, Verdict } from './lab/gates.js';
export { labReport } from './lab/lab-report.js';
export { type ProtocolFile, parseProtocol } from './lab/protocol-file.js';
export type { Protocol } from './lab/protocol-schema.js';
export type { RunData } from './lab/read-run.js';
export { readRunFolder } from './lab/run-folder.js';
export { type RunHooks, type RunRequest, resumeRun, runProtocol } from './lab/runner.js';
export { mainPath } from './main-path.js';
export { generateKeyPair, parsePrivateKey, parsePublicKey } from './receipt/dsse.js';
export { type RunFacts, runPredicate, sessionSubjects } from './receipt/run-record.js';
export { receiptLine, runStatement, writeReceipt } from './receipt/seal.js';
export { type Claim, type Verification, type VerifyOptions, verifyReceipt } from './receipt/verify.js';
