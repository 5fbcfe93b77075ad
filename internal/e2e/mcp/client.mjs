// Lists tools, remembers, recalls and forgets with one client of npm: node client.mjs sdk|client|mcp-remote FOLDER URL KEY
// [IDENTITY], where FOLDER has the installed modules. An IDENTITY binds the connection. Without a KEY the client asks a
// person (OAuth): it prints where to send the person, and reads the parameters of the answer as a line.
import {once} from 'node:events';
import {createRequire} from 'node:module';
import {createInterface} from 'node:readline';
import {pathToFileURL} from 'node:url';

const [name, folder, url, key, bound] = process.argv.slice(2);
const require = createRequire(folder + '/');
const load = async (module) => import(pathToFileURL(require.resolve(module)));
const headers = key ? {Authorization: `Bearer ${key}`} : {};
if (bound) headers['X-Service-Identity'] = bound;
const who = (identity) => (key && !bound ? {identity} : {});

// person keeps what a client of OAuth has to keep.
const person = key ? undefined : {
  redirectUrl: 'http://127.0.0.1:11953/callback',
  clientMetadata: {
    client_name: 'npm ' + name, redirect_uris: ['http://127.0.0.1:11953/callback'],
    grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'], token_endpoint_auth_method: 'none',
  },
  clientInformation() { return this.client; },
  saveClientInformation(client) { this.client = client; },
  tokens() { return this.has; },
  saveTokens(tokens) { this.has = tokens; },
  codeVerifier() { return this.verifier; },
  saveCodeVerifier(verifier) { this.verifier = verifier; },
  redirectToAuthorization(to) { console.log(JSON.stringify({authorize: to.href})); },
};

let Client, transport, connects;
if (name === 'client') {
  const m = await load('@modelcontextprotocol/client');
  Client = m.Client;
  connects = () => new m.StreamableHTTPClientTransport(new URL(url), {requestInit: {headers}, authProvider: person});
  transport = connects();
} else {
  ({Client} = await load('@modelcontextprotocol/sdk/client/index.js'));
  if (name === 'sdk') {
    const m = await load('@modelcontextprotocol/sdk/client/streamableHttp.js');
    connects = () => new m.StreamableHTTPClientTransport(new URL(url), {requestInit: {headers}, authProvider: person});
    transport = connects();
  } else {
    const m = await load('@modelcontextprotocol/sdk/client/stdio.js');
    transport = new m.StdioClientTransport({command: process.execPath, args: [
      folder + '/node_modules/mcp-remote/dist/proxy.js', url, '--allow-http', '--transport', 'http-only',
      ...Object.entries(headers).flatMap(([header, value]) => ['--header', `${header}:${value}`]),
    ]});
  }
}

let client = new Client({name: 'test-' + name, version: '1.0.0'});
try {
  await client.connect(transport);
} catch (error) {
  if (!person?.verifier) throw error;
  const [line] = await once(createInterface({input: process.stdin}), 'line');
  const answer = new URLSearchParams(line);
  await transport.finishAuth(name === 'client' ? answer : answer.get('code'));
  client = new Client({name: 'test-' + name, version: '1.0.0'});
  await client.connect(connects());
}
const use = async (tool, args) => {
  const answer = await client.callTool({name: tool, arguments: args});
  if (answer.isError) throw new Error(JSON.stringify(answer.content));
  return answer;
};
const {tools} = await client.listTools();
const id = [name, bound ?? (key ? 'key' : 'oauth')].join('-');
await use('remember', {content: `The ${id} is in the blue tin.`, id, ...who('ana')});
for (;;) { // the test that runs this ends it
  const {structuredContent, content} = await use('recall', {query: `where is the ${id}?`, ...who('ben')});
  if (structuredContent.results.some((r) => r.sources.some((s) => s.sourceId === id))) {
    await use('forget', {sourceId: id});
    console.log(JSON.stringify({tools: tools.length, text: content[0].text}));
    break;
  }
}
await client.close();
process.exit(0);
