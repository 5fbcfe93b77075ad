// The main job with openapi-fetch and the types that openapi-typescript makes into ./schema.d.ts.
import createClient from 'openapi-fetch';
import type { paths } from './schema';

declare const process: { env: Record<string, string>; exitCode: number };

const headers = { Authorization: `Bearer ${process.env.ANNALS_PROJECT_KEY}` };
const client = createClient<paths>({ baseUrl: process.env.ANNALS_URL, headers });
const deadline = Date.now() + 300_000;
const pause = (milliseconds: number) => new Promise((done) => setTimeout(done, milliseconds));

function check(holds: unknown, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

// Calls until the service does not refuse for load.
async function call<A extends { response: Response }>(make: () => Promise<A>): Promise<A> {
  for (;;) {
    const answer = await make();
    if (answer.response.status !== 503 || Date.now() > deadline) return answer;
    await pause(100);
  }
}

async function main() {
  const body = { content: 'My favourite editor is Helix.', id: 'types-1', identity: 'ana' };
  const { data: receipt, error } = await call(() => client.POST('/api/v1/ingest', { body }));
  check(receipt !== undefined && receipt.sourceId === 'types-1', error);
  const params = { path: { ingestionId: receipt.ingestionId } };
  for (;;) {
    const { data: progress } = await call(() => client.GET('/api/v1/ingest/{ingestionId}', { params }));
    check(progress !== undefined && Date.now() < deadline, params);
    if (progress.status !== 'processing') break;
    await pause(20);
  }
  const question = { query: 'Which editor does Ana like?', identity: 'ana' };
  const { data: page } = await call(() => client.POST('/api/v1/recall', { body: question }));
  check(page?.results.some((result) => result.content.includes('Helix')), page);
  const { data: explained } = await call(() => client.GET('/api/v1/ingest/{ingestionId}/explain', { params }));
  check(explained?.phase === 'indexed', explained);
  const point = { params: { path: { sourceId: 'types-1' } } };
  const deleted = await call(() => client.DELETE('/api/v1/data-points/{sourceId}', point));
  check(deleted.response.status === 202, deleted.error);
  const again = await call(() => client.DELETE('/api/v1/data-points/{sourceId}', point));
  check(again.response.status === 404 && again.error?.code === 'data-point-not-found', again.error);
  console.log('the main job is done');
}

main().catch((problem) => {
  console.error(problem);
  process.exitCode = 1;
});
