// The main job with the client that openapi-generator makes into ./client.
import { Configuration, DebuggingApi, IngestionApi, RecallApi, ResponseError } from './client';

declare const process: { env: Record<string, string>; exitCode: number };

const settings = new Configuration({ basePath: process.env.ANNALS_URL, accessToken: process.env.ANNALS_PROJECT_KEY });
const ingestion = new IngestionApi(settings);
const deadline = Date.now() + 300_000;
const pause = (milliseconds: number) => new Promise((done) => setTimeout(done, milliseconds));

function check(holds: unknown, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

// Calls until the service does not refuse for load.
async function call<T>(make: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await make();
    } catch (refused) {
      if (!(refused instanceof ResponseError) || refused.response.status !== 503 || Date.now() > deadline) throw refused;
      await pause(100);
    }
  }
}

async function main() {
  const text = { content: 'My favourite editor is Helix.', id: 'fetch-1', identity: 'ana' };
  const receipt = await call(() => ingestion.ingest({ ingest: text }));
  check(receipt.sourceId === 'fetch-1', receipt);
  const { ingestionId } = receipt;
  while ((await call(() => ingestion.getIngestion({ ingestionId }))).status === 'processing') {
    check(Date.now() < deadline, ingestionId);
    await pause(20);
  }
  const question = { query: 'Which editor does Ana like?', identity: 'ana' };
  const page = await call(() => new RecallApi(settings).recall({ recall: question }));
  check(page.results.some((result) => result.content.includes('Helix')), page);
  const explained = await call(() => new DebuggingApi(settings).explainIngestion({ ingestionId }));
  check(explained.phase === 'indexed', explained);
  await call(() => ingestion.deleteDataPoint({ sourceId: 'fetch-1' }));
  const refused = await call(() => ingestion.deleteDataPoint({ sourceId: 'fetch-1' })).catch((error) => error);
  check(refused instanceof ResponseError && refused.response.status === 404, refused);
  console.log('the main job is done');
}

main().catch((problem) => {
  console.error(problem);
  process.exitCode = 1;
});
