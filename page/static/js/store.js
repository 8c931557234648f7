// What is kept in the browser: conversations and settings.

import { toast } from './dom.js';

const chatsName = 'windrow.chats';
const settingsName = 'windrow.settings';
const mostChats = 200;

function read(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise; // no storage, or not ours
  }
}

function write(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

let list = read(chatsName, []);
if (!Array.isArray(list)) list = [];

export const newID = () => Array.from(crypto.getRandomValues(new Uint8Array(8)), (b) => b.toString(16).padStart(2, '0')).join('');

export const chats = {
  all: () => list,
  find: (id) => list.find((c) => c.id === id),
  create: () => ({ id: newID(), title: '', at: Date.now(), messages: [] }),

  /** keep saves a conversation; the oldest go where the browser has no more room. */
  keep(chat) {
    chat.at = Date.now();
    list = [chat, ...list.filter((c) => c.id !== chat.id)].slice(0, mostChats);
    while (!write(chatsName, list)) {
      if (list.length === 1) {
        toast('The browser keeps nothing here: this chat ends with the tab');
        return;
      }
      list.pop();
    }
  },

  remove(id) {
    list = list.filter((c) => c.id !== id);
    write(chatsName, list);
  },
};

export const settings = read(settingsName, {});
export const keepSettings = () => write(settingsName, settings);
