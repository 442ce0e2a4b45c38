// The types of the API that the page uses. Only for the type checker; never loaded.
interface Problem { code: string; message: string; params: Record<string, string> }
interface Progress { stage: string; step: number; steps: number; done: number; total: number; share: number | null }
type Status = "not_indexed" | "queued" | "indexing" | "success" | "degraded" | "failed" | "deleting";
type Kind = "file" | "note" | "url" | "directory" | "sitemap";
interface DocumentStatus {
  id: number; status: Status; searchable: boolean; generation: number; built: number; why: Problem | null; retry_at: string | null;
  progress: Progress | null; priority: number | null; job: string | null; queue_position: number | null; name: string; kind: Kind;
}
interface IndexStatus {
  kind: string; state: string; wanted: number; built: number; attempts: number; attempts_max: number; chunks: number; missing: number;
  made_by: string | null; error: Problem | null; retry_at: string | null; progress: Progress | null;
}
interface Doc extends DocumentStatus {
  base: string; parent: number | null; size: number; sha256: string | null; source: string | null; every: number | null;
  metadata: Record<string, unknown>; created_at: string; changed_at: string; waiting_for: Problem[]; chunks: number | null;
  indexes: IndexStatus[]; not_enabled: Record<string, Problem>; jobs: string[];
}
interface JobResult { state: string; missing: number; error?: string; attempts?: number; cpu_ms?: number; peak_kb?: number; written?: number; kept?: number; removed?: number }
interface Job {
  id: string; base: string; document: number | null; name: string; subject: string; operation: string; cause: string; requester: string; priority: number;
  state: string; outcome: string | null; generation: number; created_at: string; finished_at: string | null; running_since: string | null;
  results: Record<string, JobResult>; cost: { spent: UsageTotal; saved: UsageTotal } | null; progress: Progress | null; waiting_for: Problem[];
  bulk: { action: string; found: number; done: number; total: number; answers: Record<string, number> } | null;
}
interface QueueStats { active: Record<string, number>; active_is_exact: boolean; ended: Record<string, number>; paused: boolean; paused_bases: string[]; long_running_seconds: number }
interface Delivery {
  id: number; webhook: number; event: string; message: string; type: string; state: string; attempts: number; status: number | null; reason: string | null;
  created_at: string; tried_at: string | null; next_at: string | null; ended_at: string | null;
}
interface Page<T> { items: T[]; next_cursor: string | null; total: number | null; total_is_exact: boolean }
interface Reply { verdict: string; reason: string; message: string; name: string; document: number | null; job: string | null; status: Status; generation: number | null }
interface Replies { replies: Reply[] }
interface BulkSummary { found: number; accepted: number; answers: Record<string, number>; dry_run: boolean; jobs: string[] }
interface HoldfastEvent { id: string; type: string; at: string; base: number | null; document: number | null; owner: string; kind: string | null; job: string | null; generation: number | null; data: Record<string, any> }
interface DocumentChunk { document: number; chunk: number; generation: number; ordinal: number; start: number; end: number; tokens: number; headings: string[]; text: string }
interface MissingChunk { index: string; chunk: number; ordinal: number; start: number; end: number; text: string; problem: Problem }
interface PassageInContext { document: number; name: string; generation: number; chunk: number; start: number; end: number; page: number | null; headings: string[]; before: string; text: string; after: string }
interface TextPart { document: number; generation: number; title: string | null; start: number; length: number; text: string; following: number | null }
interface HistoryEntry {
  at: string; what: string; kind: string | null; job: string | null; generation: number | null; attempt: number | null; operation: string | null;
  requester: string | null; problem: Problem | null; seconds: number | null;
  waited_seconds: number | null; cpu_seconds: number | null; peak_bytes: number | null; written: number | null; kept: number | null; removed: number | null;
}
interface DocumentEntity { key: string; name: string; kind: string; mentions: number }
interface Card { place: number; question: string; answer: string; document: number; name: string; chunk: number; headings: string[]; passage: string }
interface UsageTotal { kind: string; texts: number; tokens_in: number; tokens_out: number; price: number | null; unpriced: number; estimated: number }
interface DocumentUsage { document: number; name: string; spent: UsageTotal; saved: UsageTotal; kinds_spent: UsageTotal[]; kinds_saved: UsageTotal[] }
interface ServedPassage { document: number; name: string; chunk: number; generation: number; start: number; end: number; headings: string[]; text: string }
interface Hit extends ServedPassage { rank: number; score: number; title: string | null; channels: Record<string, { score: number; rank: number }> }
interface Notice extends Problem { channel: string }
interface Citation { number: number; document: number; name: string; chunk: number; generation: number; start: number; end: number; quote: string }
interface Answer { outcome: "answered" | "nothing_found" | "no_language_model"; message: string; mode: string; text: string; citations: Citation[]; context: ServedPassage[]; facts: string[]; cut: boolean; notices: Notice[] }
