// What a service in JavaScript does with the store: append, conflict, read, follow, delete, set metadata. The address is
// in ANNALS_ADDRESS. Every test has streams of its own, so the store may hold anything.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";

const require = createRequire(import.meta.url);
const {
  ANY, BACKWARDS, END, EventStoreDBClient, NO_STREAM, START, STREAM_EXISTS,
  eventTypeFilter, jsonEvent, binaryEvent, streamNameFilter, persistentSubscriptionToStreamSettingsFromDefaults,
} = require("@eventstore/db-client");
const { StreamsClient } = require("@eventstore/db-client/generated/streams_grpc_pb");

const address = process.env.ANNALS_ADDRESS;
const secure = !address.includes("tls=false");

// calls counts which form of append went over the wire.
const calls = { append: 0, batchAppend: 0 };
for (const name of Object.keys(calls)) {
  const original = StreamsClient.prototype[name];
  StreamsClient.prototype[name] = function (...args) {
    calls[name]++;
    return original.apply(this, args);
  };
}

const named = (what) => `${what}-${randomUUID()}`;
const event = (data = { n: 1 }, type = "tested") => jsonEvent({ type, data, metadata: { by: "test" } });
const events = (n) => Array.from({ length: n }, (_, i) => event({ n: i }));

async function collect(reading) {
  const out = [];
  for await (const resolved of reading) out.push(resolved.event);
  return out;
}

// failure is the error that a call ends with.
async function failure(call) {
  try {
    await call;
  } catch (error) {
    return error;
  }
  assert.fail("the call did not fail");
}

for (const form of ["batchAppend", "append"]) {
  describe(`the client, appending by ${form}`, () => {
    let client;
    before(() => {
      client = EventStoreDBClient.connectionString(address);
      // What the client asks to choose its form of append.
      if (form === "append") client.supports = async () => false;
    });
    after(() => client.dispose());

    test("appends and reads both ways", async () => {
      const stream = named("account");
      const before = { ...calls };
      const sent = [...events(4), binaryEvent({ type: "raw", data: Buffer.from([0, 255, 1]) })];
      const result = await client.appendToStream(stream, sent, { expectedRevision: NO_STREAM });
      assert.equal(result.success, true);
      assert.equal(result.nextExpectedRevision, 4n);
      assert.ok(result.position.commit > 0n && result.position.commit === result.position.prepare);
      assert.equal(calls[form], before[form] + 1, "the other form of append was used");

      const read = await collect(client.readStream(stream));
      assert.deepEqual(read.map((e) => e.id), sent.map((e) => e.id));
      assert.deepEqual(read.map((e) => e.revision), [0n, 1n, 2n, 3n, 4n]);
      assert.deepEqual([read[2].data, read[2].metadata, read[2].isJson, read[2].streamId], [{ n: 2 }, { by: "test" }, true, stream]);
      assert.deepEqual([...read[4].data], [0, 255, 1]);
      assert.ok(Math.abs(read[0].created - Date.now()) < 3_600_000);
      const back = await collect(client.readStream(stream, { direction: BACKWARDS, fromRevision: 3n, maxCount: 2 }));
      assert.deepEqual(back.map((e) => e.revision), [3n, 2n]);
      const last = await collect(client.readStream(stream, { direction: BACKWARDS, fromRevision: END, maxCount: 1 }));
      assert.deepEqual(last.map((e) => e.revision), [4n]);
      assert.equal((await failure(collect(client.readStream(named("missing"))))).type, "stream-not-found");
    });

    test("appends at every kind of revision, many at once and in parts", async () => {
      const stream = named("account");
      for (const expectedRevision of [NO_STREAM, 0n, ANY, STREAM_EXISTS]) {
        assert.ok((await client.appendToStream(stream, event(), { expectedRevision })).success);
      }
      const results = await Promise.all(Array.from({ length: 100 }, () => client.appendToStream(stream, event())));
      assert.deepEqual(results.map((r) => r.nextExpectedRevision).sort((a, b) => Number(a - b)), Array.from({ length: 100 }, (_, i) => BigInt(i + 4)));
      const parts = await client.appendToStream(stream, events(50), { expectedRevision: 103n, batchAppendSize: 500 });
      assert.equal(parts.nextExpectedRevision, 153n);
      assert.deepEqual((await collect(client.readStream(stream, { fromRevision: 104n }))).map((e) => e.data.n), events(50).map((e) => e.data.n));
    });

    test("is told of a conflict, and that a repeated append is none", async () => {
      const stream = named("account");
      const sent = events(3);
      const first = await client.appendToStream(stream, sent, { expectedRevision: NO_STREAM });
      const again = await client.appendToStream(stream, sent, { expectedRevision: NO_STREAM });
      assert.deepEqual([again.nextExpectedRevision, again.position], [first.nextExpectedRevision, first.position]);
      const error = await failure(client.appendToStream(stream, event(), { expectedRevision: 1n }));
      assert.deepEqual([error.type, error.streamName, error.expectedVersion, error.actualVersion], ["wrong-expected-version", stream, 1n, 2n]);
      const absent = await failure(client.appendToStream(named("missing"), event(), { expectedRevision: STREAM_EXISTS }));
      assert.deepEqual([absent.type, absent.actualVersion], ["wrong-expected-version", "no_stream"]);
      assert.equal((await collect(client.readStream(stream))).length, 3);
    });

    test("is told that an append is too large", async () => {
      const stream = named("account");
      const large = event({ text: "x".repeat(600 * 1024) });
      const error = await failure(client.appendToStream(stream, [large, event({ text: "y".repeat(600 * 1024) })]));
      assert.deepEqual([error.type, error.maxAppendSize], ["maximum-append-size-exceeded", 1048576]);
      assert.ok((await client.appendToStream(stream, large, { expectedRevision: NO_STREAM })).success);
    });

    test("deletes, appends again, and tombstones", async () => {
      const stream = named("account");
      await client.appendToStream(stream, events(3));
      assert.equal((await failure(client.deleteStream(stream, { expectedRevision: 7n }))).type, "wrong-expected-version");
      assert.ok((await client.deleteStream(stream, { expectedRevision: 2n })).position.commit > 0n);
      assert.equal((await failure(collect(client.readStream(stream)))).type, "stream-not-found");
      assert.equal((await client.appendToStream(stream, event())).nextExpectedRevision, 3n);
      assert.deepEqual((await collect(client.readStream(stream))).map((e) => e.revision), [3n]);
      await client.tombstoneStream(stream);
      const calls = [
        client.appendToStream(stream, event()), collect(client.readStream(stream)), client.deleteStream(stream),
        client.tombstoneStream(stream), client.getStreamMetadata(stream),
      ];
      for (const error of await Promise.all(calls.map(failure))) {
        assert.equal(error.type, "stream-deleted");
      }
      // As on the server: metadata is still taken, and read by nobody.
      assert.ok((await client.setStreamMetadata(stream, { maxCount: 1 })).success);
      assert.equal((await failure(client.getStreamMetadata(stream))).type, "stream-deleted");
    });

    test("sets metadata, which bounds what is read", async () => {
      const stream = named("account");
      await client.appendToStream(stream, events(5));
      assert.equal((await client.getStreamMetadata(stream)).metadata, undefined);
      await client.setStreamMetadata(stream, { maxCount: 2, colour: "green" }, { expectedRevision: NO_STREAM });
      assert.deepEqual((await collect(client.readStream(stream))).map((e) => e.revision), [3n, 4n]);
      await client.setStreamMetadata(stream, { truncateBefore: 4 }, { expectedRevision: 0n });
      assert.deepEqual((await collect(client.readStream(stream))).map((e) => e.revision), [4n]);
      assert.deepEqual((await client.getStreamMetadata(stream)).metadata, { truncateBefore: 4 });
      assert.deepEqual((await collect(client.readStream(`$$${stream}`))).map((e) => e.revision), [1n]);
    });
  });
}

describe("the client, reading the whole log", () => {
  let client;
  before(() => { client = EventStoreDBClient.connectionString(address); });
  after(() => client.dispose());

  test("reads both ways", async () => {
    const stream = named("ordered");
    const { position } = await client.appendToStream(stream, events(3));
    const back = await collect(client.readAll({ direction: BACKWARDS, fromPosition: END, maxCount: 3 }));
    assert.deepEqual(back.map((e) => [e.streamId, e.revision]), [[stream, 2n], [stream, 1n], [stream, 0n]]);
    assert.deepEqual(back[0].position, position);
    const on = await collect(client.readAll({ fromPosition: back[2].position }));
    assert.deepEqual(on.map((e) => e.revision), [0n, 1n, 2n]);
    const all = await collect(client.readAll({ fromPosition: START, maxCount: 1000 }));
    assert.ok(all.every((e, i) => i === 0 || e.position.commit > all[i - 1].position.commit));
  });

  // followed opens a subscription to the whole log and takes what comes until there are n events.
  async function followed(options, n, meanwhile) {
    const got = [];
    const subscription = client.subscribeToAll(options);
    const done = (async () => {
      for await (const { event } of subscription) {
        got.push(event);
        if (got.length === n) break;
      }
    })();
    await meanwhile();
    await done;
    await subscription.unsubscribe();
    return got;
  }

  test("follows by a prefix of the stream, with checkpoints", async () => {
    const wanted = named("wanted");
    const { position } = await client.appendToStream(named("other"), events(40));
    const checkpoints = [];
    const filter = streamNameFilter({
      prefixes: [wanted], maxSearchWindow: 8, checkpointInterval: 1,
      checkpointReached: (_, at) => checkpoints.push(at.commit),
    });
    const got = await followed({ fromPosition: position, filter }, 5, async () => {
      for (let i = 0; i < 5; i++) {
        await client.appendToStream(named("other"), events(10));
        await client.appendToStream(`${wanted}-${i}`, event({ n: i }));
      }
    });
    assert.deepEqual(got.map((e) => [e.streamId, e.data.n]), [0, 1, 2, 3, 4].map((n) => [`${wanted}-${n}`, n]));
    assert.ok(checkpoints.length >= 4, `${checkpoints.length} checkpoints`);
    assert.ok(checkpoints.every((at, i) => at > (i === 0 ? position.commit : checkpoints[i - 1])), "checkpoints do not rise");
    // A checkpoint is a place to go on from: nothing before it is missing, nothing behind it comes twice.
    const rest = await followed({ fromPosition: { commit: checkpoints[2], prepare: checkpoints[2] }, filter }, got.filter((e) => e.position.commit > checkpoints[2]).length, async () => {});
    assert.deepEqual(rest.map((e) => e.id), got.filter((e) => e.position.commit > checkpoints[2]).map((e) => e.id));
  });

  test("follows by an expression on the type", async () => {
    const type = `type-${randomUUID()}`;
    const { position } = await client.appendToStream(named("typed"), event({}, "another"));
    const got = await followed({ fromPosition: position, filter: eventTypeFilter({ regex: `^${type}-(one|two)$` }) }, 2, async () => {
      for (const end of ["one", "three", "two"]) await client.appendToStream(named("typed"), event({ end }, `${type}-${end}`));
    });
    assert.deepEqual(got.map((e) => e.data.end), ["one", "two"]);
  });

  test("follows one stream from a revision on, stored and live", async () => {
    const stream = named("followed");
    await client.appendToStream(stream, events(3));
    const revisions = [];
    const subscription = client.subscribeToStream(stream, { fromRevision: 0n });
    let appended = false;
    for await (const { event: e } of subscription) {
      revisions.push(e.revision);
      if (!appended) {
        appended = true;
        await client.appendToStream(stream, event());
      }
      if (revisions.length === 3) break;
    }
    await subscription.unsubscribe();
    assert.deepEqual(revisions, [1n, 2n, 3n]);
  });
});

test("what the node does not have is said to be missing", async () => {
  const client = EventStoreDBClient.connectionString(address);
  const settings = persistentSubscriptionToStreamSettingsFromDefaults();
  const error = await failure(client.createPersistentSubscriptionToStream(named("s"), "group", settings));
  assert.equal(error._raw?.code ?? error.code, 12, String(error));
  await client.dispose();
});

test("credentials of one call are taken, and others refused", { skip: !secure && "there are none without TLS" }, async () => {
  const url = new URL(address);
  const credentials = { username: url.username, password: decodeURIComponent(url.password) };
  url.username = url.password = "";
  const client = EventStoreDBClient.connectionString(String(url));
  const before = { ...calls };
  assert.ok((await client.appendToStream(named("account"), event(), { credentials })).success);
  assert.equal(calls.append, before.append + 1, "an append with credentials of its own is no batch");
  for (const options of [{}, { credentials: { username: "admin", password: "changeit" } }]) {
    const calls = [client.appendToStream(named("account"), event(), options), collect(client.readAll({ maxCount: 1, ...options })), client.deleteStream(named("account"), options)];
    for (const error of await Promise.all(calls.map(failure))) {
      assert.ok(error.type === "access-denied" || (error._raw?.code ?? error.code) === 16, `${error.type}: ${error}`);
    }
  }
  await client.dispose();
});
