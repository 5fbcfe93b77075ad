// Runs in every document before the page's own scripts: finds elements by what a person sees of them.
globalThis.__kit = (() => {
  const kinds = {
    button: 'button, input[type=submit], summary, [role=button]',
    link: 'a[href]',
    field: 'input:not([type=hidden]), select, textarea',
  };
  const parts = 'tr, li, article, section, fieldset, form, dl, details, dialog';
  const plain = (text) => (text || '').replace(/\s+/g, ' ').trim();

  function labelText(label) {
    const copy = label.cloneNode(true);
    copy.querySelectorAll('select, input, textarea').forEach((e) => e.remove());
    return plain(copy.textContent);
  }

  function nameOf(e) {
    const by = (e.getAttribute('aria-labelledby') || '').split(/\s+/).filter(Boolean)
      .map((id) => plain(document.getElementById(id)?.textContent)).join(' ');
    const labels = [...(e.labels || [])].map(labelText).join(' ');
    const own = e.matches(kinds.field) && e.type !== 'submit' ? '' : e.innerText || e.textContent || e.value;
    return plain(by || e.getAttribute('aria-label') || labels || own || e.title);
  }

  const shown = (e) => e.checkVisibility({visibilityProperty: true}) && e.getClientRects().length > 0;

  // find returns the one element of a kind with a name, of those in the part of the page that has the text of inside. A
  // name that is equal wins over one that begins so, and that over one that holds the words.
  function find(kind, name, inside) {
    let all = [...document.querySelectorAll(kinds[kind])].filter(shown);
    if (inside) all = all.filter((e) => {
      for (let p = e.closest(parts); p; p = p.parentElement?.closest(parts)) {
        if (plain(p.innerText).includes(inside)) return !p.querySelector('main, nav');
      }
      return false;
    });
    const matches = [(n) => n === name, (n) => n.startsWith(name), (n) => n.includes(name)];
    for (const match of matches) {
      let found = all.filter((e) => match(nameOf(e)));
      const inMain = found.filter((e) => e.closest('main'));
      if (inMain.length) found = inMain;
      if (inside && found.length > 1) {
        const size = (e) => { let p = e.closest(parts); while (!plain(p.innerText).includes(inside)) p = p.parentElement.closest(parts); return p.innerText.length; };
        const least = Math.min(...found.map(size));
        found = found.filter((e) => size(e) === least);
      }
      const places = new Set(found.map((e) => (kind === 'link' ? e.href : e)));
      if (places.size > 1) throw new Error(`${found.length} elements (${kind}) are named "${name}"`);
      if (found.length) return found[0];
    }
    throw new Error(`no ${kind} is named "${name}"; there are: ${all.map(nameOf).filter(Boolean).slice(0, 60).join(' | ')}`);
  }

  // point brings an element into view and returns where to click it.
  function point(e) {
    e.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});
    const r = e.getClientRects()[0];
    const x = r.left + r.width / 2, y = r.top + r.height / 2;
    const top = document.elementFromPoint(x, y);
    if (top && !e.contains(top) && !top.contains(e) && !(e.labels && [...e.labels].some((l) => l.contains(top)))) {
      throw new Error(`"${nameOf(e)}" is covered by <${top.tagName.toLowerCase()} class="${top.className}">`);
    }
    return {x, y};
  }

  let settled = 0;
  addEventListener('htmx:afterSettle', () => settled++);
  const token = String(Math.random());
  return {
    find, point, nameOf,
    // state is what changes once a click has had its effect.
    state: () => ({
      token, settled, url: location.href,
      ready: document.readyState === 'complete' && !document.querySelector('.htmx-request'),
    }),
    // leads reports whether a click on an element asks the server for something.
    leads: (e) => {
      if (e.matches('a[href]')) return !e.getAttribute('href').startsWith('#') && !e.hasAttribute('download');
      return e.matches('button, input[type=submit]') && e.type === 'submit' && !!e.form && e.form.method !== 'dialog';
    },
    set: (e, value) => {
      if (e.matches('select')) {
        const option = [...e.options].find((o) => plain(o.text) === value || o.value === value) ||
          [...e.options].find((o) => plain(o.text).startsWith(value));
        if (!option) throw new Error(`"${nameOf(e)}" has no option "${value}"; there are: ${[...e.options].map((o) => plain(o.text)).join(' | ')}`);
        value = option.value;
      }
      e.value = value;
      e.dispatchEvent(new Event('input', {bubbles: true}));
      e.dispatchEvent(new Event('change', {bubbles: true}));
    },
    // typed reports whether a person types into an element, and empties it.
    typed: (e) => {
      const types = ['text', 'search', 'email', 'password', 'url', 'tel', 'number'];
      if (!e.matches('textarea') && !(e.matches('input') && types.includes(e.type))) return false;
      e.focus();
      if (e.value) e.select();
      return true;
    },
    text: () => plain(document.body?.innerText),
  };
})();
