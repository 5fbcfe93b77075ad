// The main job with the client that openapi-ts generates into ./client.
import * as annals from './client';
import { createClient, createConfig } from './client/client';

declare const process: { env: Record<string, string>; exitCode: number };

const baseUrl = process.env.ANNALS_URL;
const client = createClient(createConfig({ baseUrl, auth: process.env.ANNALS_PROJECT_KEY }));
const open = createClient(createConfig({ baseUrl }));
const deadline = Date.now() + 300_000;
const pause = (milliseconds: number) => new Promise((done) => setTimeout(done, milliseconds));

function check(holds: unknown, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

type Answer<Data, Failure> = { data?: Data; error?: Failure; response?: Response };

// Calls until the service does not refuse for load.
async function answered<Data, Failure>(status: number, call: () => Promise<Answer<Data, Failure>>): Promise<Answer<Data, Failure>> {
  for (;;) {
    const answer = await call();
    if (answer.response?.status === 503 && Date.now() < deadline) {
      await pause(100);
      continue;
    }
    check(answer.response?.status === status, { want: status, status: answer.response?.status, error: answer.error });
    return answer;
  }
}

async function call<Data, Failure>(status: number, make: () => Promise<Answer<Data, Failure>>): Promise<Data> {
  const { data } = await answered(status, make);
  check(data !== undefined, 'the answer has no data');
  return data;
}

async function completed(ingestionId: string) {
  for (;;) {
    const progress = await call(200, () => annals.getIngestion({ client, path: { ingestionId } }));
    if (progress.status !== 'processing') {
      check(progress.status === 'completed' && progress.failure === null, progress);
      return;
    }
    check(Date.now() < deadline, progress);
    await pause(20);
  }
}

async function recalled(query: string, identity: string, bounds: Partial<annals.Recall> = {}) {
  const page = await call(200, () => annals.recall({ client, body: { query, identity, ...bounds } }));
  return page.results.flatMap((result) => result.sources.map((source) => ({ ...result, id: source.sourceId })));
}

async function main() {
  // Text in, memory derived, recalled with its source.
  const body = { content: 'My favourite editor is Helix.', id: 'call-1', identity: 'ana' };
  const receipt = await call(202, () => annals.ingest({ client, body }));
  check(receipt.status === 'queued' && receipt.sourceId === 'call-1' && receipt.unchanged === null, receipt);
  await completed(receipt.ingestionId);
  const again = await call(200, () => annals.ingest({ client, body }));
  check(again.unchanged === true && again.status === 'completed', again);
  const batch = await call(202, () => annals.ingestBatch({ client, body: { items: [{ content: 'Bo moved to Lisbon.', id: 'note-1' }] } }));
  check(batch.items[0].sourceId === 'note-1', batch);
  await completed(batch.ingestionId);
  const found = await recalled('Which editor does Ana like?', 'ana', { level: 'medium' });
  check(found.some((entry) => entry.id === 'call-1' && entry.content.includes('Helix')), found);

  // What is scoped reaches a member, and no neighbour.
  await call(200, () => annals.putIdentity({ client, path: { identity: 'cy' }, body: { traits: { team: 'finance' } } }));
  const rule: annals.Rule = { match: 'all', conditions: [{ trait: 'team', operator: 'is', values: ['finance'] }] };
  await call(201, () => annals.putAudience({ client, path: { slug: 'finance' }, body: { kind: 'rule', rule } }));
  const member = await call(200, () => annals.getIdentity({ client, path: { identity: 'cy' } }));
  check(member.audiences?.includes('finance'), member);
  const memo = { content: 'The merger price is 3 million.', id: 'memo-1', audience: 'finance' };
  await completed((await call(202, () => annals.ingest({ client, body: memo }))).ingestionId);
  const price = 'What is the merger price?';
  check((await recalled(price, 'cy')).some((entry) => entry.id === 'memo-1'), 'a member does not recall the memo');
  check(!(await recalled(price, 'bo')).some((entry) => entry.id === 'memo-1'), 'a neighbour recalls the memo');

  // Where it comes from, and what became of it.
  const explained = await call(200, () => annals.explainIngestion({ client, path: { ingestionId: receipt.ingestionId } }));
  check(explained.phase === 'indexed', explained);
  const root = explained.items?.[0]?.sourceId;
  check(root, explained);
  const node = await call(200, () => annals.getNode({ client, path: { id: root } }));
  check(node.kind === 'source' && node.dataPointId === 'call-1', node);
  const lineage = await call(200, () => annals.getLineage({ client, path: { rootId: root }, query: { revealAll: true } }));
  check(lineage.edges.some((edge) => edge.inputId === root), lineage);
  const timeline = await call(200, () => annals.getTimeline({ client, path: { rootId: root } }));
  check(timeline.root.id === root, timeline);
  const roots = await call(200, () => annals.listRoots({ client, query: { search: 'call-1' } }));
  check(roots.sources.nodes[0].dataPointId === 'call-1', roots);

  // An event of another system.
  const event = await call(202, () => annals.receiveEvent({
    client: open,
    path: { webhookId: process.env.ANNALS_WEBHOOK_ID, token: process.env.ANNALS_WEBHOOK_TOKEN },
    body: { id: 'ticket-1', content: 'The printer is out of toner.' },
  }));
  check(event.verdict === 'ingested' && event.dataPointId === 'ticket-1' && event.ingestionId !== null, event);
  await completed(event.ingestionId);
  check((await recalled('Which printer has no toner?', 'bo')).some((entry) => entry.id === 'ticket-1'), 'the event is not recalled');

  // Deleted, and gone at once. Errors have one form.
  await call(202, () => annals.deleteDataPoint({ client, path: { sourceId: 'call-1' } }));
  check(!(await recalled('Which editor does Ana like?', 'ana')).some((entry) => entry.id === 'call-1'), 'it is recalled after its deletion');
  const gone = await answered(404, () => annals.deleteDataPoint({ client, path: { sourceId: 'call-1' } }));
  const failure = gone.error as annals.Error;
  check(failure.code === 'data-point-not-found' && failure.data.ids?.[0] === 'call-1', failure);
  console.log('the main job is done');
}

main().catch((problem) => {
  console.error(problem);
  process.exitCode = 1;
});
