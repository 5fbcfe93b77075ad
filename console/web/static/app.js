// What the console does where scripts run. Each part has a plain link or form behind it.
(function () {
  "use strict";

  // The zone of the browser, until the person sets one.
  var zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone && document.cookie.indexOf("zone=" + zone) < 0) {
    document.cookie = "zone=" + zone + ";path=/;max-age=31536000;samesite=lax";
  }

  // On a phone the navigation is a line that scrolls.
  document.querySelectorAll("nav [aria-current]").forEach(function (link) {
    link.scrollIntoView({block: "nearest", inline: "center"});
  });

  // Forms from another address than that of the console are refused: name it before somebody types a password.
  document.querySelectorAll("[data-console]").forEach(function (note) {
    note.hidden = location.origin === note.dataset.console;
  });

  function copyButtons(root) {
    root.querySelectorAll(".copy:not([data-ready])").forEach(function (box) {
      box.setAttribute("data-ready", "");
      var button = document.createElement("button");
      button.type = "button";
      button.className = "small";
      button.textContent = "Copy";
      button.addEventListener("click", function () {
        navigator.clipboard.writeText(box.querySelector("code").textContent).then(function () {
          button.textContent = "Copied";
        });
      });
      box.appendChild(button);
    });
  }

  // Forms with data-confirm ask first; without scripts the page has a step of its own.
  document.addEventListener("submit", function (e) {
    var text = e.target.getAttribute("data-confirm");
    if (!text) return;
    if (!window.confirm(text)) return e.preventDefault();
    var sure = document.createElement("input");
    sure.type = "hidden";
    sure.name = "sure";
    sure.value = "yes";
    e.target.appendChild(sure);
  });

  // A link with data-drawer opens that part of its page beside the list.
  var drawer = document.getElementById("drawer"), from;

  function closeDrawer() {
    if (!drawer.firstChild) return;
    drawer.replaceChildren();
    if (from && from.isConnected) from.focus();
  }

  document.addEventListener("click", function (e) {
    var link = e.target.closest("a[data-drawer]");
    if (!link || !window.htmx || e.button || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return;
    e.preventDefault();
    closeDrawer();
    from = link;
    var part = {target: drawer, select: link.dataset.drawer, swap: "innerHTML ignoreTitle:true"};
    function show() {
      if (!drawer.firstElementChild) return location.assign(link.href); // there is no such part, or no answer
      var close = document.createElement("button");
      close.type = "button";
      close.className = "small";
      close.textContent = "Close";
      close.addEventListener("click", closeDrawer);
      drawer.prepend(close);
      drawer.scrollTop = 0;
      drawer.focus();
    }
    window.htmx.ajax("GET", link.getAttribute("href"), part).then(show, show);
  });

  function rows() {
    return Array.prototype.slice.call(document.querySelectorAll("main tbody tr")).filter(function (r) {
      return r.querySelector("a");
    });
  }

  function move(by) {
    var list = rows(), at = list.indexOf(document.querySelector("tr.current"));
    if (!list.length) return;
    if (at >= 0) list[at].classList.remove("current");
    var next = list[Math.max(0, Math.min(list.length - 1, at + by))];
    next.classList.add("current");
    next.querySelector("a").focus();
  }

  document.addEventListener("keydown", function (e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    var typing = /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName);
    if (e.key === "Escape") {
      if (typing) e.target.blur();
      document.querySelectorAll("details[open].menu").forEach(function (d) { d.open = false; });
      closeDrawer();
      return;
    }
    if (typing) return;
    if (e.key === "/") {
      var find = document.getElementById("find");
      if (find) { e.preventDefault(); find.focus(); find.select(); }
    } else if (e.key === "j") move(1);
    else if (e.key === "k") move(-1);
  });

  copyButtons(document);
  document.addEventListener("htmx:afterSettle", function (e) { copyButtons(e.target); });
})();
