// What the API answers, as far as the page reads it. Only for the checker; never loaded.
interface Problem { code: string; message: string; params: Record<string, string> }
interface Progress { stage: string; step: number; steps: number; done: number; total: number; share: number | null }
type Status = "not_indexed" | "queued" | "indexing" | "success" | "degraded" | "failed" | "deleting";
type Kind = "file" | "note" | "url" | "directory" | "sitemap";
interface Standing {
  id: number; status: Status; searchable: boolean; generation: number; built: number; why: Problem | null; retry_at: string | null;
  progress: Progress | null; priority: number | null; job: string | null; queue_position: number | null; name: string; kind: Kind;
}
interface Index {
  kind: string; state: string; wanted: number; built: number; attempts: number; attempts_max: number; chunks: number; missing: number;
  made_by: string | null; error: Problem | null; retry_at: string | null; progress: Progress | null;
}
interface Doc extends Standing {
  base: string; parent: number | null; size: number; sha256: string | null; source: string | null; every: number | null;
  metadata: Record<string, unknown>; created_at: string; changed_at: string; waiting_for: string[]; chunks: number | null;
  indexes: Index[]; not_enabled: Record<string, string>; jobs: string[];
}
interface Page<T> { items: T[]; next_cursor: string | null; total: number | null }
interface Reply { verdict: string; reason: string; message: string; name: string; document: number | null; job: string | null; status: Status; generation: number | null }
interface Replies { replies: Reply[] }
interface HoldfastEvent { id: string; type: string; at: string; base: number | null; document: number | null; owner: string; kind: string | null; job: string | null; generation: number | null; data: Record<string, any> }
